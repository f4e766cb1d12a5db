// One card for each bandit: filled again at every update, never rebuilt, so that focus and what was opened stay.

import { clock, earnings, formal, health, number, precise, projection, promise, rate, span, who } from "./dashboard-words.js";

const LISTED = 20; // models in a card's table

export const part = (root, name) => root.querySelector(`[data-is="${name}"]`);
export const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };
export const show = (element, text) => { write(element, text); element.hidden = !text; };

export const cards = new Map(); // name → card

// What costs a question of its own is asked for cards in or near the view only.
let seen = () => {};
export const whenSeen = (action) => { seen = action; };
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const card = [...cards.values()].find((card) => card.root === entry.target);
    if (!card) continue;
    card.near = entry.isIntersecting;
    if (card.near && !card.releases) seen();
  }
}, { rootMargin: "400px" });
const sizes = new ResizeObserver((entries) => {
  for (const card of cards.values()) if (card.releases && entries.some((entry) => entry.target === card.root)) chart(card);
});

export function newCard(name) {
  const root = document.getElementById("card").content.firstElementChild.cloneNode(true);
  const card = { name, root, near: false, badge: "", at: (field) => part(root, field) };
  const identify = (field, suffix) => { card.at(field).id = `${suffix}-${name}`; return `${suffix}-${name}`; };
  root.id = `bandit-${name}`;
  root.setAttribute("aria-labelledby", identify("name", "name"));
  write(card.at("name"), name);
  card.at("meter").setAttribute("aria-labelledby", `${root.getAttribute("aria-labelledby")} ${identify("spent-label", "spent")}`);
  root.querySelector(".scroll").setAttribute("aria-label", `The latest models of ${name}`);
  watcher.observe(root);
  sizes.observe(root);
  return card;
}

export function forget(name) {
  const { root } = cards.get(name);
  watcher.unobserve(root);
  sizes.unobserve(root);
  root.remove();
  cards.delete(name);
}

export function fillCard(card, bandit) {
  const put = (field, text) => write(card.at(field), text);
  const state = health(bandit), learning = bandit.status === "learning";
  const changed = card.badge && card.badge !== state.badge;
  Object.assign(card, { bandit, badge: state.badge, tone: state.tone });
  put("badge", state.badge);
  card.at("badge").className = `badge ${state.tone}`;
  put("kind", `Algorithm ${bandit.algorithm} · ${number(bandit.dim)} features · protects ${bandit.claim.unit}`);
  const notices = [state.notice];
  if (bandit.timelines > 1) notices.push(`Its promise counts ${bandit.timelines} times: learning was resumed from an old copy of the store.`);
  show(card.at("notice"), notices.filter(Boolean).join(" "));
  card.at("notice").className = `notice ${bandit.timelines > 1 && state.tone !== "bad" ? "warn" : state.tone}`;
  put("rate", rate(bandit.decisions_per_second));
  put("decisions", `decisions a second; ${number(bandit.decisions)} in all`);
  put("version", number(bandit.model_version));
  put("learner", state.learner);
  put("lease", state.lease);
  put("waiting-title", learning ? "Waiting" : "Not learned");
  put("waiting", number(bandit.waiting));
  put("window", learning ? `decisions; each is learned at the age of ${span(bandit.reward_window)}` : "decisions; learning does not go on");
  const [ends, why] = projection(bandit);
  put("projection", ends);
  put("why", why);
  const claim = bandit.timelines > 1 && card.claim || bandit.claim; // counted as often as it was promised
  put("words", promise(claim));
  put("formal", formal(claim));
  if (!card.at("assumptions").children.length) card.at("assumptions").append(...bandit.claim.assumptions.map((text) => filled("li", text)));
  follow(card);
  return changed ? `${bandit.name}: ${state.badge}.` : "";
}

const OFFERED = 8; // arms in a card
const KEPT = 360; // points of traffic: half an hour

// How many decisions a second, since this page was opened: the service keeps the last minute alone.
function follow(card) {
  card.traffic = [...(card.traffic || []), [card.bandit.store_time, card.bandit.decisions_per_second]].slice(-KEPT);
  const points = card.traffic, [first] = points[0], [last, now] = points[points.length - 1];
  const most = Math.max(...points.map(([, each]) => each));
  const words = `Decisions a second since this page was opened: now ${rate(now)}, at most ${rate(most)}.`;
  drawTraffic(card.at("traffic"), points, most, words);
  write(card.at("traffic-caption"), last - first >= 1 ? `${words} The line covers ${span(last - first)}.` : words);
}

function fillOffers(card, offers) {
  const total = offers.reduce((sum, one) => sum + one.offers, 0), hidden = card.bandit.claim.notion === "joint";
  card.at("offers").replaceChildren(...offers.slice(0, OFFERED).map((one) => {
    const row = document.createElement("li"), bar = filled("div", ""), fill = filled("div", "");
    bar.className = "meter";
    fill.className = "fill";
    bar.setAttribute("aria-hidden", "true");
    fill.style.width = `${100 * one.offers / total}%`;
    bar.append(fill);
    row.append(filled("span", one.arm), bar, filled("output", `${number(100 * one.offers / total)}%`));
    return row;
  }));
  const more = offers.length > OFFERED ? ` ${number(offers.length - OFFERED)} more arms are not shown.` : "";
  write(card.at("offers-note"), hidden ? "What was offered is private here, and is not counted."
    : total ? `Of ${number(total)} offers by the process that answers, since it started.${more} Offers are public; clicks are not shown.`
      : "Nothing was offered by the process that answers, since it started.");
}

export function fillDetails(card, privacy, releases, offers) {
  fillOffers(card, offers);
  const { bandit } = card, limit = privacy.claim.epsilon, spent = privacy.spent.epsilon;
  card.claim = privacy.claim;
  const counted = Boolean(limit) && spent !== null;
  card.at("meter").closest(".meter-row").hidden = !counted;
  if (counted) {
    const percent = Math.min(100, 100 * spent / limit);
    write(card.at("spent-label"), `Most spent by one ${who(privacy.claim.unit)}`);
    meter(card.at("meter"), card.at("spent"), percent, `${number(percent)}%: ε ${number(spent, 2)} of ${number(limit, 2)}`);
  }
  const [earned, how] = earnings(privacy.measured);
  card.at("measured").hidden = !how;
  write(card.at("earned"), earned);
  write(card.at("earned-how"), how);
  const latest = releases[releases.length - 1];
  const age = bandit.store_time - latest.made_at;
  const made = latest.model_version === 0 ? "nothing learned yet" : age < 2 ? "made just now" : `made ${span(age)} ago`;
  write(card.at("published"), latest.memory === null ? `${made}; forgets nothing` : `${made}; remembers some ${number(latest.memory)} decisions, since tastes seem to move`);
  card.releases = releases;
  card.root.classList.remove("loading");
  chart(card);
  const rows = releases.slice(-LISTED).reverse();
  write(card.root.querySelector("caption"), `The latest ${rows.length} of ${number(latest.model_version + 1)} models of ${card.name}, newest first; model 0 has learned nothing`);
  card.root.querySelector("tbody").replaceChildren(...rows.map((release) => {
    const row = document.createElement("tr");
    const made = clock(release.made_at, Math.max(60, latest.made_at - rows[rows.length - 1].made_at));
    row.append(...[number(release.model_version), made, number(release.position),
      release.noise_scale === null ? "none" : precise(release.noise_scale),
      release.spent.epsilon === null ? "no limit" : number(release.spent.epsilon, 3)].map((text) => filled("td", text)));
    return row;
  }));
}

function chart(card) {
  const shown = card.releases.filter((release) => release.noise_scale !== null), kind = card.bandit.claim.notion;
  const scales = shown.map((release) => release.noise_scale), size = { gdp: "standard deviation", pure: "scale" }[kind] || "size";
  const label = !shown.length ? `Noise in each new model of ${card.name}: no model has been learned yet.`
    : `Noise in each new model of ${card.name}: the ${shown.length === 1 ? "only" : `last ${shown.length}`} from ${clock(shown[0].made_at, 7200)} to ${clock(shown[shown.length - 1].made_at, 7200)}. ` +
      `Noise ${precise(scales[0])} at first, ${precise(scales[scales.length - 1])} now, between ${precise(Math.min(...scales))} and ${precise(Math.max(...scales))}. The table below has the figures.`;
  draw(card.at("chart"), card.releases, label);
  const now = shown.length ? `, now ${precise(scales[scales.length - 1])}. Each sum behind a model is off by about that much, at random` : "";
  write(card.at("caption"), `The line is the ${size} of the noise${now}. Ticks mark new models.`);
  card.at("caption").hidden = card.at("table").hidden = !shown.length;
}

export function filled(name, text) {
  const element = document.createElement(name);
  element.textContent = text;
  return element;
}

export function meter(bar, output, percent, text) {
  write(output, text);
  bar.setAttribute("aria-valuenow", Math.round(percent));
  bar.setAttribute("aria-valuetext", text);
  bar.firstElementChild.style.width = `${percent}%`;
}

// ---------------------------------------------------------------- the chart

function made(name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function drawTraffic(svg, points, most, label) {
  const width = svg.clientWidth || 480, height = svg.clientHeight || 110, left = 48, right = 8, top = 10, bottom = 10;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("aria-label", label);
  const [first] = points[0], length = points[points.length - 1][0] - first || 1, ceiling = most ? Math.max(most, 0.1) : 1;
  const x = (at) => left + (at - first) / length * (width - left - right);
  const y = (each) => top + (1 - each / ceiling) * (height - top - bottom);
  const path = points.map(([at, each], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(each).toFixed(1)}`);
  const [last, now] = points[points.length - 1];
  svg.replaceChildren(
    ...[0, ceiling].flatMap((tick) => [
      made("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      made("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, rate(tick)),
    ]),
    made("path", { class: "curve", d: path.join("") }),
    made("circle", { class: "end", cx: x(last), cy: y(now), r: 4 }));
}

function draw(svg, releases, label) {
  const shown = releases.filter((release) => release.noise_scale !== null);
  const children = [];
  svg.classList.toggle("empty", !shown.length);
  const width = svg.clientWidth || 480, height = svg.clientHeight || 190, left = 48, right = 8, top = 14, bottom = 34;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("aria-label", label);
  if (!shown.length) {
    children.push(made("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "No model has been learned yet."));
  } else {
    const first = shown[0].made_at, last = shown[shown.length - 1].made_at, length = last - first;
    const highest = Math.max(...shown.map((release) => release.noise_scale));
    const rough = highest / 2.2, size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].find((factor) => factor * size >= rough) * size;
    const ceiling = Math.ceil(highest / step - 1e-9) * step;
    const x = (at) => left + (length ? (at - first) / length : 0.5) * (width - left - right);
    const y = (scale) => top + (1 - scale / ceiling) * (height - top - bottom);
    for (let tick = 0; tick <= ceiling * 1.001; tick += step) {
      children.push(made("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }));
      children.push(made("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, precise(tick)));
    }
    for (const release of shown) {
      children.push(made("line", { class: "rug", x1: x(release.made_at), x2: x(release.made_at), y1: height - bottom, y2: height - bottom + 6 }));
    }
    const path = shown.map((release, index) =>
      (index ? `H${x(release.made_at).toFixed(1)}V` : `M${x(release.made_at).toFixed(1)} `) + y(release.noise_scale).toFixed(1));
    children.push(made("path", { class: "curve", d: path.join("") }));
    children.push(made("circle", { class: "end", cx: x(last), cy: y(shown[shown.length - 1].noise_scale), r: 4 }));
    children.push(made("text", { x: x(first), y: height - 8, "text-anchor": length ? "start" : "middle" }, clock(first, length)));
    if (length) children.push(made("text", { x: width - right, y: height - 8, "text-anchor": "end" }, clock(last, length)));
  }
  svg.replaceChildren(...children);
}
