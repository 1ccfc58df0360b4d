// The decision that is looked at, and the difference of two. Shows what it is given; asks for more of a decision where it is
// long. What is chosen and where keys lead is the page's.

import { ask, digest, duration, el, moment, number, outcome, several } from "./basics.js";
import { briefly, shown } from "./json.js";

const ASKS_AT_ONCE = 200;

const button = (text, title, act) => el("button", { type: "button", class: "plain", title, text, onclick: act });
const heading = (text, ...more) => el("h3", {}, text, ...more);
const who = (given) => (given ? `${given.guest}@${given.version}` : "");

/** One decision; `page` has what its buttons do. */
export function decision(given, page) {
  const { row } = given;
  const asks = el("div", { class: "asks" });
  const value = (n, part) => () => ask("value", { r: page.recording, n, part });
  const out = [el("header", {},
    el("div", { class: "title" }, outcome(row.outcome), el("h2", { text: given.name }), el("div", { class: "actions" },
      el("button", { type: "button", class: "plain back", text: "Back", onclick: page.back }),
      given.twin && button(`Compare with ${who(given.twin.who)}`, `Another version was asked the same at entry ${given.twin.n} (v)`, () => page.difference(row.n, given.twin.n)),
      button(page.marked === null ? "Mark (d)" : page.marked === row.n ? "Marked" : `Difference to ${page.marked} (d)`, "Mark it, then choose another: what differs is shown", page.mark),
      button("Copy link", "The address of this decision", page.copy))),
    el("div", { class: "facts" },
      el("span", { text: `entries ${row.n}–${row.n + row.asks + (given.ending ? 1 : 0) + (given.args ? 0 : -1)}` }),
      row.at_ms !== null && el("span", { text: moment(row.at_ms) }),
      row.took_ms !== null && el("span", { text: `at least ${duration(row.took_ms)}`, title: "As far as its clock and its sleeps say" }),
      el("span", { text: several(row.asks, "question") }),
      el("span", { text: several(row.writes, "write") }),
      given.header && el("span", { text: `${given.header.guest}@${given.header.version}` }),
      row.rolled_back && el("span", { class: "tag", text: "rolled back: what it did was lost" })))];
  const verdict = el("div");
  out.push(verdict);
  const end = given.ending;
  const ending = end && [heading(end.kind === "result" ? "Result" : "Ending"), el("div", { class: `card${row.outcome === "ok" ? "" : " failed"}` }, shown(end.value, value(end.n, "ending"), end.kind !== "result"))];
  // What is wrong comes first.
  if (end && row.outcome !== "ok") out.push(...ending);
  if (given.args) out.push(heading("Arguments"), el("div", { class: "card" }, shown(given.args, value(row.n, "args"))));
  const openAll = button("Open all (o)", "Open or close all questions", () => page.openAll());
  out.push(heading(several(row.asks, "question"), row.asks > 0 && openAll), asks);
  if (row.asks === 0) asks.append(el("div", { class: "card" }, el("div", { class: "quiet", text: "It asked nothing." })));
  const more = el("button", { type: "button", class: "more" });
  const add = (list, from) => {
    more.remove();
    asks.append(...list.map((one) => question(one, value)));
    const left = row.asks - from - list.length;
    if (left > 0 && list.length > 0) {
      more.textContent = `show ${number(Math.min(left, ASKS_AT_ONCE))} of ${number(left)} more`;
      more.onclick = async () => {
        more.disabled = true;
        const next = await ask("decision", { r: page.recording, n: row.n, from: from + list.length, count: ASKS_AT_ONCE });
        more.disabled = false;
        add(next.asks, from + list.length);
      };
      asks.after(more);
    }
  };
  if (end && row.outcome === "ok") out.push(...ending);
  else if (!end && given.args) out.push(heading("Ending"), el("div", { class: "card" }, el("div", { class: "quiet", text: "It has not ended, as far as is recorded." })));
  if (given.header) out.push(heading("Decided by"), header(given, value));
  const box = el("article", {}, ...out.filter(Boolean));
  add(given.asks, 0);
  if (page.against) against(verdict, row, page, asks);
  return box;
}

/** One question, closed. */
function question(one, value) {
  const card = el("div", { class: "card", "data-n": one.n });
  const line = el("button", { type: "button", class: `ask${one.writes ? " write" : ""}`, "aria-expanded": "false" },
    el("span", { class: "n", text: String(one.n) }), el("span", { class: "what", text: one.name, title: one.writes ? "writes" : "" }),
    el("span", { class: "brief", text: one.args.text === "{}" ? "" : briefly(one.args.text, 70) }),
    el("span", { class: `brief answer${one.failed || !one.answer ? " bad" : ""}`, text: one.answer ? briefly(one.answer.text, 80) : "no answer" }));
  let sides = null;
  card.open = (isOpen) => {
    if (isOpen && !sides) {
      sides = el("div", { class: "sides" },
        el("div", {}, el("h4", { text: "Asked" }), shown(one.args, value(one.n, "args"))),
        el("div", {}, el("h4", { text: "Answer" }), one.answer ? shown(one.answer, value(one.n, "answer")) : el("div", { class: "quiet", text: "none: the call ended first" })));
      card.append(sides);
    }
    if (sides) sides.hidden = !isOpen;
    line.setAttribute("aria-expanded", String(isOpen));
  };
  card.isOpen = () => line.getAttribute("aria-expanded") === "true";
  line.addEventListener("click", () => card.open(!card.isOpen()));
  card.append(line);
  return card;
}

function header(given, value) {
  const { header, row, file } = given;
  const list = el("dl", { class: "head-table" });
  const say = (name, text) => list.append(el("dt", { text: name }), el("dd", {}, text));
  say("Guest", `${header.guest}@${header.version}`);
  say("Digest", header.digest);
  say("World", header.world);
  say("Host", `trueup ${header.host}`);
  say("File", file);
  say("Settings", shown(header.settings, value(row.n, "settings")));
  say("Limits", shown(header.limits, null));
  say("State before entry " + header.n, header.snapshot ? shown(header.snapshot, value(row.n, "snapshot")) : "none");
  return el("div", { class: "card" }, list);
}

/** What another guest does with the recorded answers. */
async function against(into, row, page, asks) {
  const { guest } = page.against;
  const words = el("div", { class: "quiet", text: "deciding again…" });
  into.append(heading(`Against ${guest}`), el("div", { class: "card" }, words));
  let verdict;
  try { verdict = await ask("against", { r: page.recording, n: row.n }); } catch (error) { words.textContent = error.message; return; }
  const alone = verdict.alone_since === null ? "" : `decided by itself, from the state at the segment's beginning: the recording was left before, at entry ${verdict.alone_since}\n`;
  words.className = `verdict ${verdict.same ? "same" : "differs"}`;
  const found = verdict.outcome?.divergence ?? verdict.outcome?.ending;
  const fields = found?.differences;
  words.textContent = alone + (fields ? verdict.words.split("\n")[0] : verdict.words);
  if (fields) words.after(table(fields.map((one) => ({ path: one.path, a: side(one.recorded), b: side(one.replayed) })), "recorded", guest));
  if (verdict.diverged_at === null) return;
  for (const card of asks.querySelectorAll(".card")) {
    const n = Number(card.dataset.n);
    if (n === verdict.diverged_at) { card.classList.add("first-difference"); card.querySelector(".what")?.append(" ", el("span", { class: "tag", text: "first difference" })); }
    else if (n > verdict.diverged_at) card.classList.add("not-reached");
  }
}

const side = (given) => (given === null || given === undefined ? null : given.value !== undefined ? JSON.stringify(given.value) : `${given.elements} elements`);

/** How two decisions differ. */
export function difference(given, page) {
  const sideOf = (one, word) => el("div", { class: word }, el("button", { type: "button", text: `${one.row.n}  ${one.name}`, onclick: () => page.go(one.row.n) }), " ", outcome(one.row.outcome),
    el("div", { class: "facts" }, el("span", { text: moment(one.row.at_ms) }), el("span", { text: `${who(one.who)} ${one.who ? digest(one.who.digest) : ""}` })));
  const counts = given.asks.reduce((sum, pair) => ({ ...sum, [kind(pair)]: (sum[kind(pair)] ?? 0) + 1 }), {});
  const isSame = !given.calls && !given.args.fields.length && !given.ending.fields.length && Object.keys(counts).every((key) => key === "same");
  const out = [el("header", {}, el("div", { class: "title" }, el("h2", { text: isSame ? "No difference" : "Difference" }), el("div", { class: "actions" }, button("Close (Esc)", "Back to the decision", page.closeDifference))),
    el("div", { class: "sides-legend" }, sideOf(given.a, "a"), sideOf(given.b, "b")))];
  const [a, b] = [String(given.a.row.n), String(given.b.row.n)];
  const whole = (fields, what) => el("div", { class: "card" }, fields.fields.length ? table(fields.fields, a, b, fields.more) : el("div", { class: "quiet", text: `${what} the same.` }));
  out.push(heading("Arguments"), whole(given.args, "The arguments are"));
  out.push(heading("Questions", el("span", { text: Object.entries(counts).map(([key, count]) => `${number(count)} ${{ same: "same", differs: "differ", a: `only in ${a}`, b: `only in ${b}` }[key]}`).join(" · ") })));
  const asks = el("div", { class: "asks" });
  let run = [];
  const flush = () => {
    if (run.length === 0) return;
    const kept = run;
    run = [];
    const line = el("button", { type: "button", class: "same-run", text: `= ${several(kept.length, "question is", "questions are")} the same: ${[...new Set(kept.map((pair) => pair.name))].slice(0, 6).join(", ")}` });
    line.addEventListener("click", () => line.replaceWith(...kept.map((pair) => el("div", { class: "pair" }, el("span", { class: "sign", text: "=" }), el("span", { class: "n", text: pair.a }), el("span", { class: "n", text: pair.b }), el("span", { text: pair.name })))));
    asks.append(el("div", { class: "card" }, line));
  };
  for (const pair of given.asks) {
    const word = kind(pair);
    if (word === "same") { run.push(pair); continue; }
    flush();
    const sign = { differs: "≠", a: "−", b: "+" }[word];
    asks.append(el("div", { class: "card" }, el("div", { class: `pair ${word}` }, el("span", { class: "sign", text: sign }), el("span", { class: "n", text: pair.a ?? "" }), el("span", { class: "n", text: pair.b ?? "" }), el("span", { text: pair.name })),
      pair.fields.length ? table(pair.fields, a, b, pair.more, false) : null));
  }
  flush();
  if (given.asks.length === 0) asks.append(el("div", { class: "card" }, el("div", { class: "quiet", text: "Neither asked anything." })));
  out.push(asks);
  if (given.is_cut) out.push(el("div", { class: "quiet", text: "Only the first questions of each were compared." }));
  out.push(heading("Ending"), whole(given.ending, "They ended"));
  return el("article", { class: "difference" }, ...out);
}

const kind = (pair) => (pair.a === null ? "b" : pair.b === null ? "a" : pair.fields.length ? "differs" : "same");

/** Fields of two sides, with what the texts have in common beside what they don't. */
function table(fields, a, b, more = 0, withHead = true) {
  const cell = (text, other, word) => {
    if (text === null) return el("td", { class: "none", text: "nothing" });
    const cell = el("td", { class: word });
    if (other === null) { cell.textContent = text; return cell; }
    let begin = 0;
    while (begin < text.length && begin < other.length && text[begin] === other[begin]) begin += 1;
    let end = 0;
    while (end < text.length - begin && end < other.length - begin && text[text.length - 1 - end] === other[other.length - 1 - end]) end += 1;
    const until = text.length - end;
    cell.append(el("i", { text: text.slice(0, begin) }), el("b", { text: text.slice(begin, until) }), el("i", { text: text.slice(until) }));
    return cell;
  };
  const body = el("tbody", {}, ...fields.map((field) => el("tr", {}, el("td", { text: field.path }), cell(field.a, field.b, "old"), cell(field.b, field.a, "new"))));
  if (more > 0) body.append(el("tr", {}, el("td", { colspan: 3, text: `and ${number(more)} more` })));
  return el("table", { class: "fields" }, withHead && el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "Field" }), el("th", { scope: "col", text: a }), el("th", { scope: "col", text: b }))), body);
}

/** Opens the question of an entry, and brings it into sight. */
export function showEntry(box, n) {
  const card = box.querySelector(`.asks > .card[data-n="${CSS.escape(String(n))}"]`);
  if (!card) return false;
  card.open(true);
  card.scrollIntoView({ block: "center" });
  card.classList.remove("flash");
  card.classList.add("flash");
  return true;
}

export function openAll(box) {
  const cards = [...box.querySelectorAll(".asks > .card")].filter((card) => card.open);
  const isAnyClosed = cards.some((card) => !card.isOpen());
  cards.forEach((card) => card.open(isAnyClosed));
}

/** A sentence instead of a decision. */
export const said = (text, isBusy = false) => el("div", { class: `said${isBusy ? " busy" : ""}`, text });
