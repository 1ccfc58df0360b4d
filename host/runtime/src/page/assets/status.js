// What is wrong, in short: the newest problem of all recordings, and under a host, the status of its guests and keys.

import { day, clock, duration, el, number, outcome, several } from "./basics.js";

const KEYS_MAX = 20;

export function showHealth(box, newest, host, recordings) {
  // What the keyboard is in stays.
  if (box.contains(document.activeElement)) return;
  box.replaceChildren(problem(newest), ...(host ? [state(host), guests(host), keys(host, recordings)] : []));
  box.hidden = false;
}

const group = (name, ...children) => el("div", { class: name }, ...children);
const link = (r, n, text) => el("a", { href: `#${new URLSearchParams(n === null ? { r } : { r, n })}`, text });
const since = (ms) => duration(Math.max(0, Date.now() - ms));

function problem({ problem, decision, unread }) {
  const older = unread > 0 ? ` ${several(unread, "older file")} not read.` : "";
  if (!problem) return group("newest", el("b", { class: decision ? "well" : "", text: decision ? "No problem is recorded." : "Nothing is recorded yet." }), older);
  return group("newest", el("b", { text: "Newest problem" }),
    problem.differs ? el("span", { class: "outcome error", text: "≠ differs" }) : outcome(problem.outcome), link(problem.r, problem.n, `${problem.r} at entry ${problem.n}`),
    problem.at_ms !== null && el("span", { class: "dim", title: `${since(problem.at_ms)} ago`, text: `${day(problem.at_ms)} ${clock(problem.at_ms).slice(0, 8)} UTC` }),
    problem.words && el("code", { text: problem.words, title: problem.words }));
}

/** In the words of `trueup status`. */
function state({ problems }) {
  return group("host", el("b", { text: "Host" }), ...(problems.length ? problems.map((text) => el("span", { class: "bad", text })) : ["all is well"]));
}

function keys(host, recordings) {
  const counts = Object.entries(host.keys).filter(([, count]) => count > 0).map(([state, count]) => `${number(count)} ${state}`);
  const rows = host.in_trouble.slice(0, KEYS_MAX).map((one) => {
    const id = `${one.guest}/${one.key}`;
    return el("li", {}, recordings.some((known) => known.id === id) ? link(id, null, id) : id, ` ${one.state} for ${since(one.since_ms)}: `, el("code", { text: one.error, title: one.error }));
  });
  const more = host.in_trouble_count - rows.length;
  if (more > 0) rows.push(el("li", { text: `and ${number(more)} more` }));
  return group("keys", el("b", { text: "Keys" }), counts.join(", ") || "none", rows.length > 0 && el("ul", {}, ...rows));
}

function guests(host) {
  return group("guests", el("b", { text: "Guests" }), ...host.guests.map((one) => el("span", {}, `${one.guest}@${one.version} `,
    el("span", { class: one.failures || one.quarantined ? "bad" : "dim", text: [`${several(one.calls, "call")}, ${number(one.failures)} failed`, one.quarantined > 0 && `${number(one.quarantined)} set aside`, one.shadow && `shadow ${one.shadow.candidate}: ${number(one.shadow.same)} of ${number(one.shadow.compared)} the same`].filter(Boolean).join(", ") }))));
}
