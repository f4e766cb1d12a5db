// Numbers and settings in plain words. Pure functions: from what the API answers to text.

export const number = (value, digits = 0) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
export const precise = (value) => value.toLocaleString("en", { maximumSignificantDigits: 3 });
export const rate = (value) => (value === 0 ? "0" : value < 0.1 ? "under 0.1" : value < 100 ? number(value, 1) : number(value));

export function power(value) { // 1e-6 → 10⁻⁶
  if (!value) return "0";
  const [digits, exponent] = value.toExponential(2).split("e");
  if (Math.abs(exponent) < 3) return precise(value);
  const raised = [...exponent.replace("+", "")].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");
  return Number(digits) === 1 ? `10${raised}` : `${Number(digits)} × 10${raised}`;
}

export function span(seconds) {
  const units = [["year", 31557600], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  if (seconds > 1e9) return "more than 30 years";
  if (seconds < 1) return `${precise(seconds)} seconds`;
  const [name, size] = units.find(([, size]) => seconds >= 2 * size) || units[4];
  const count = Math.round(seconds / size);
  return `${number(count)} ${name}${count === 1 ? "" : "s"}`;
}

export function clock(seconds, around) {
  const at = new Date(seconds * 1000);
  if (around >= 172800) return at.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
  const time = { hour: "2-digit", minute: "2-digit", second: around < 3600 ? "2-digit" : undefined };
  return around >= 43200 ? at.toLocaleString("en-GB", { weekday: "short", ...time }) : at.toLocaleTimeString("en-GB", time);
}

// Three digits, rounded so that the promise comes out weaker, never stronger.
function cautious(value, round) {
  const unit = 10 ** (Math.floor(Math.log10(value)) - 2);
  return round(value / unit + (round === Math.floor ? 1e-6 : -1e-6)) * unit;
}

// Who has a budget of their own: a reward, a user or a person.
export const who = (unit) => ["user", "person"].find((kind) => unit.startsWith(`one ${kind}`)) || "reward";

// What a unit says of a person or a user who may come any number of times, said to them.
export function toYou(unit) {
  const [, what] = unit.match(/^one (?:person|user), however often they come: (.+)$/) || [];
  return what ? `Whoever you are, however often you come, ${what.replace(/\btheir\b/g, "your")}.` : "";
}

export const milliseconds = (seconds) => (seconds < 1 ? `${precise(1000 * seconds)} ms` : `${precise(seconds)} s`);

// What Prometheus would be told of this process, as numbers: the times of decisions, answers and errors.
export function measured(text) {
  const buckets = [], answers = { all: 0, failed: 0 };
  for (const line of text.split("\n")) {
    const bucket = line.match(/^dpbandit_decision_seconds_bucket{le="([^"]+)"} (\S+)/);
    const answer = line.match(/^dpbandit_requests_total{.*status="(\d+)"} (\S+)/);
    if (bucket) buckets.push([bucket[1] === "+Inf" ? Infinity : Number(bucket[1]), Number(bucket[2])]);
    if (answer) {
      answers.all += Number(answer[2]);
      if (answer[1] >= "500") answers.failed += Number(answer[2]);
    }
  }
  const total = buckets.length ? buckets[buckets.length - 1][1] : 0;
  const within = (share) => (buckets.find(([, count]) => count >= share * total) || [0])[0];
  return { decided: total > 0, median: within(0.5), slow: within(0.99), ...answers };
}

export function promise(claim) {
  if (claim.status === "none" || claim.epsilon === null) return "No privacy is promised. What this bandit shows may give rewards away.";
  if (claim.epsilon === 0) return "It never learns from rewards, so nothing it shows says anything about them.";
  const whose = `any one ${who(claim.unit)}’s rewards`, visit = "any one visit, with its reward";
  const reward = claim.notion === "joint" ? visit : "any one reward (say, whether somebody clicked)";
  const whom = who(claim.unit) === "reward" ? reward : claim.notion === "joint" ? `${whose} and visits` : whose;
  const factor = precise(cautious(Math.exp(claim.epsilon), Math.ceil));
  const slack = claim.delta ? `, up to a slack in probability of 1 in ${precise(cautious(1 / claim.delta, Math.floor))}` : "";
  const proof = claim.status === "proven" ? "" : " The argument for this is published, but it is not proven.";
  const yours = toYou(claim.unit);
  return `${yours}${yours && " "}Whoever sees everything this bandit ever shows, and knows all other rewards, can shift their odds about ${whom} by a factor of ${factor} at most${slack}.${proof}`;
}

export function formal(claim) {
  if (claim.epsilon === null) return `Status: ${claim.status}.`;
  const notion = { gdp: "Gaussian noise", pure: "Laplace noise", approximate: "approximate", parallel: "randomized answers, then Gaussian noise", joint: "joint" }[claim.notion];
  return [`ε = ${precise(claim.epsilon)}, δ = ${power(claim.delta)} for ${claim.unit}`, notion, claim.status,
    claim.noise === "real" ? "real noise" : claim.noise].filter(Boolean).join(" · ");
}

// What the budget will do. It belongs to each reward (or user), not to the bandit: the meter shows whoever has paid most.
export function projection(bandit) {
  const unit = who(bandit.claim.unit);
  if (bandit.claim.epsilon === 0) return ["The budget never runs out: nothing is spent.", ""];
  if (bandit.claim.epsilon === null) return ["There is no budget.", ""];
  if (bandit.status === "spent") return ["Learning has ended. The last model stays in use.", "The promise keeps holding: no more is ever spent."];
  if (bandit.horizon === null) {
    return ["The budget never runs out, however long the bandit runs.",
      `Each ${unit} has a budget of its own. A full bar means that some ${unit} has paid all it will ever pay; the next one starts afresh.`];
  }
  const left = bandit.decisions_until_horizon, seconds = bandit.seconds_until_horizon;
  const why = `Made for ${number(bandit.horizon)} decisions. Then learning stops, and the last model stays in use.`;
  if (left === 0) return ["The budget runs out as soon as the decisions made so far are learned.", why];
  if (seconds === null) return [`The budget lasts for ${number(left)} more decisions. There was no traffic in the last minute, so there is no date.`, why];
  return [`The budget lasts for about ${span(seconds)} (${number(left)} decisions), if traffic stays as it is.`, why];
}

export function health(bandit) {
  const away = "No learner is running. Decisions continue with the last model and rewards are stored, but nothing is learned. Start one with dpbandit serve --role learner; the log of the last one says why it stopped.";
  if (bandit.status === "learning") {
    return bandit.learner.alive
      ? { badge: "Learning", tone: "good", learner: "At work", lease: "its lease is in force", notice: "" }
      : { badge: "No learner", tone: "warn", learner: "Absent", lease: "no lease is in force", notice: away };
  }
  const known = {
    spent: ["Finished", "plain", "the budget is spent"], retired: ["Retired", "plain", "taken out of learning"],
    restored: ["Old copy", "bad", "stopped: an operator must decide"], failed: ["Failed", "bad", "stopped by an error"],
  };
  const [badge, tone, lease] = known[bandit.status] || [bandit.status, "warn", "does not learn"];
  const reason = bandit.reason && bandit.reason[0].toUpperCase() + bandit.reason.slice(1) + ".";
  return { badge, tone, learner: tone === "plain" ? "Done" : "Stopped", lease, notice: reason };
}

// What a shadow and a holdout earned: releases with noise, paid for by the budget. [words, how they were made]
export function earnings(told) {
  if (!told) return ["", ""];
  const about = (one) => (one ? `${number(one.mean, 4)} (${number(one.low, 4)} to ${number(one.high, 4)})` : "not known yet");
  const words = [];
  if (told.shadow) words.push(`In the shadow it agreed in ${number(100 * told.shadow.agreement, 1)}% of ${number(told.shadow.rounds)} rounds. The arms shown earned ${about(told.shadow.shown)} a round; this bandit would have earned ${about(told.shadow.would_have_earned)}.`);
  if (told.holdout) words.push(`Its lift a round over random play: ${about(told.holdout.lift)}, from ${number(told.holdout.by_lot)} random rounds.`);
  const how = `Means with 95% intervals, released with noise after every ${number(told.every)} rounds and paid for by the budget; ${number(told.releases)} so far.`;
  const waiting = Object.values(told.waiting ?? {}).map((rounds) => number(rounds)).join(" and ");
  return [words.join(" ") || `Nothing was released yet; ${waiting || 0} rounds are waiting.`, how];
}
