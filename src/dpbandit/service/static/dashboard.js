// The dashboard: asks the API with the visitor's key and writes what it answers as text, never as markup.
// It must never ask for, compute or show anything that comes from rewards, but what was released: docs/dashboard.md says why.

import { cards, fillCard, fillDetails, filled, forget, meter, newCard, part, show, whenSeen, write } from "./dashboard-cards.js";
import { measured, milliseconds, number, power, rate } from "./dashboard-words.js";

const EVERY = 5000; // milliseconds between updates
const PATIENCE = 15000;
const STORED = "dpbandit.key";

const byId = (id) => document.getElementById(id);
const say = (text) => { byId("said").textContent = text; };

// ---------------------------------------------------------------- asking

class Problem extends Error {
  constructor(text, status = 0) { super(text); this.status = status; }
}

async function ask(path, key, read = (answer) => answer.json()) {
  if (!/^[\x21-\x7e]+$/.test(key)) throw new Problem("not a key", 401);
  let answer;
  try {
    answer = await fetch(path, {
      headers: { Authorization: `Bearer ${key}` }, cache: "no-store", credentials: "omit", redirect: "error",
      signal: AbortSignal.timeout(PATIENCE),
    });
    if (answer.ok) return await read(answer);
  } catch (error) {
    throw new Problem(error.name === "TimeoutError" ? "The service takes too long to answer." : "The service cannot be reached.");
  }
  const body = await answer.json().catch(() => ({}));
  throw new Problem(`The service answered: ${body.error || "an error"} (${answer.status}).`, answer.status);
}

// ---------------------------------------------------------------- the page

function fillTotal(answer, bandits) {
  const { total, cap } = answer, put = (field, text) => write(part(byId("totals"), field), text);
  const deleted = answer.bandits.filter((bandit) => bandit.status === "deleted").length;
  put("epsilon", total.epsilon === null ? "none" : `ε = ${number(total.epsilon, 2)}`);
  put("delta", `at δ = ${power(total.delta)}${total.proven ? ", proven" : "; not all of it is proven"}`);
  put("cap", cap ? `ε = ${number(cap.epsilon, 2)}` : "none");
  put("left", cap ? `at δ = ${power(cap.delta)}; ${number(answer.remaining_epsilon, 2)} left for new bandits` : "new bandits are not limited");
  put("count", number(bandits.length));
  put("deleted", deleted ? `and ${number(deleted)} deleted` : "none was ever deleted");
  put("rate", rate(bandits.reduce((sum, bandit) => sum + bandit.decisions_per_second, 0)));
  byId("cap").hidden = !cap || total.epsilon === null;
  if (!byId("cap").hidden) {
    const percent = Math.min(100, 100 * total.epsilon / cap.epsilon);
    meter(byId("cap-meter"), byId("cap-value"), percent, `${number(percent)}%: ε ${number(total.epsilon, 2)} of ${number(cap.epsilon, 2)}`);
  }
  show(byId("restored"), answer.restored ? `This store is ${answer.restored}. No bandit can be made until an operator has decided.` : "");
}

function fillMeasured(text) {
  const put = (field, text) => write(part(byId("totals"), field), text), found = measured(text);
  const under = (seconds) => (seconds === Infinity ? "over 2.5 s" : `under ${milliseconds(seconds)}`);
  put("latency", found.decided ? under(found.median) : "–");
  put("slow", found.decided ? `half of them; 99 in 100 ${under(found.slow)}` : "no decision since this process started");
  put("errors", number(found.failed));
  put("requests", `of ${number(found.all)} answers since this process started`);
}

function fillBoard(bandits) {
  const names = new Set(bandits.map((bandit) => bandit.name)), news = [];
  for (const name of [...cards.keys()]) if (!names.has(name)) forget(name);
  for (const bandit of bandits) {
    if (!cards.has(bandit.name)) cards.set(bandit.name, newCard(bandit.name));
    news.push(fillCard(cards.get(bandit.name), bandit));
  }
  const order = bandits.map((bandit) => cards.get(bandit.name).root);
  if (order.some((root, index) => byId("cards").children[index] !== root)) byId("cards").replaceChildren(...order);
  byId("none").hidden = bandits.length > 0;
  const troubled = [...cards.values()].filter((card) => ["warn", "bad"].includes(card.tone));
  const note = byId("attention"), wanted = troubled.map((card) => card.name).join("\n");
  if (note.dataset.names !== wanted) {
    note.dataset.names = wanted;
    note.replaceChildren(...(troubled.length ? ["Needs attention: "] : []), ...troubled.flatMap((card, index) => {
      const link = filled("a", card.name);
      link.href = `#${card.root.id}`;
      return index ? [", ", link] : [link];
    }));
  }
  note.hidden = !troubled.length;
  document.title = `${troubled.length ? `(${troubled.length}) ` : ""}dpbandit`;
  return news.filter(Boolean).join(" ");
}

let session = null; // {key, busy}, one for each signing in: answers that come after signing out are dropped
let timer = 0, paused = false, wanted = false;

function soon(delay = 50) {
  clearTimeout(timer);
  timer = setTimeout(refresh, delay);
}

async function refresh() {
  const mine = session;
  if (!mine || mine.busy) return;
  mine.busy = true;
  wanted = false;
  try {
    const [list, total, metrics] = await Promise.all([
      ask("v1/bandits", mine.key), ask("v1/privacy", mine.key), ask("metrics", mine.key, (answer) => answer.text()),
    ]);
    if (session !== mine) return;
    const first = byId("board").hidden, news = fillBoard(list.bandits);
    fillTotal(total, list.bandits);
    fillMeasured(metrics);
    if (first) welcome(list.bandits.length);
    else if (news) say(news);
    for (const card of [...cards.values()].filter((card) => card.near)) { // one after the other: never a flood
      const path = `v1/bandits/${encodeURIComponent(card.name)}`;
      const [privacy, history, whole] = await Promise.all(["/privacy", "/releases", ""].map((more) => ask(path + more, mine.key)));
      if (session !== mine) return;
      fillDetails(card, privacy, history.releases, whole.offers);
    }
    if (byId("problem").textContent) say("The service answers again.");
    show(byId("problem"), "");
    write(byId("updated"), `${paused ? "As of" : "Updated"} ${new Date().toLocaleTimeString("en-GB")}`);
  } catch (error) {
    if (session === mine) failed(error);
  } finally {
    mine.busy = false;
    if (session === mine && wanted) soon();
    else if (session === mine && !paused && !document.hidden) soon(EVERY);
  }
}

function failed(error) {
  if (!(error instanceof Problem)) console.error(error);
  if (error.status === 401) {
    const before = !byId("board").hidden;
    signOut(before ? "This key is no longer valid. Sign in with another one." : "This key is not valid here. Check that it was copied whole, or ask for a new one.");
  } else if (error.status !== 404) { // a bandit deleted between two questions is gone at the next update
    const text = `${error instanceof Problem ? error.message : "This page met an unexpected answer."} ` +
      (byId("board").hidden ? "Trying again." : "Trying again; the figures below are the last ones known.");
    if (byId("problem").textContent !== text) say(text);
    show(byId("problem"), text);
  }
}

function welcome(count) {
  byId("sign-in").hidden = true;
  byId("board").hidden = byId("tools").hidden = false;
  byId("main").focus({ preventScroll: true });
  say(`Signed in. ${count} ${count === 1 ? "bandit" : "bandits"}.`);
}

const entering = (now) => write(byId("enter"), now ? "Checking…" : "Show the bandits");

function signIn(key) {
  session = { key, busy: false };
  sessionStorage.setItem(STORED, key);
  show(byId("key-problem"), "");
  entering(true);
  byId("key").removeAttribute("aria-invalid");
  soon(0);
}

function signOut(why) {
  session = null;
  clearTimeout(timer);
  sessionStorage.removeItem(STORED);
  for (const name of [...cards.keys()]) forget(name);
  byId("attention").replaceChildren();
  delete byId("attention").dataset.names;
  byId("board").hidden = byId("tools").hidden = true;
  byId("sign-in").hidden = false;
  entering(false);
  document.title = "dpbandit";
  setPaused(false);
  show(byId("problem"), "");
  show(byId("key-problem"), why);
  byId("key").value = "";
  if (why) byId("key").setAttribute("aria-invalid", "true");
  byId("key").focus();
  say(why || "Signed out.");
}

function setPaused(now) {
  paused = now;
  write(byId("pause"), paused ? "Resume" : "Pause");
  byId("pause").setAttribute("aria-label", paused ? "Resume updates" : "Pause updates");
  if (paused) clearTimeout(timer);
  else if (session) soon(0);
}

whenSeen(() => {
  wanted = true;
  if (session && !session.busy) soon();
});
byId("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = byId("key").value.trim();
  if (key) signIn(key);
});
byId("sign-out").addEventListener("click", () => signOut(""));
byId("pause").addEventListener("click", () => {
  setPaused(!paused);
  say(paused ? "Updates are paused." : "Updates go on.");
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && session && !paused) soon(0); });

if (sessionStorage.getItem(STORED)) signIn(sessionStorage.getItem(STORED));
else { byId("sign-in").hidden = false; byId("key").focus(); }
