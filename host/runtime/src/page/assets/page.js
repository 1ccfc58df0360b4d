// The page: which recording, filter and decision are looked at, the keys, and what is new or wrong.

import { ask, bytes, byId, clock, day, el, moment, number, several } from "./basics.js";
import * as detail from "./detail.js";
import { List } from "./list.js";
import { showHealth } from "./status.js";

const POLL_MS = 1000;
const POLL_HIDDEN_MS = 8000;
const DWELL_MS = 50;
const COLUMNS = 240;

const state = { recording: null, recordings: [], against: null, inHost: false, filter: { outcome: "", writes: false, name: "" }, generation: null, n: null, entry: null, marked: null, compared: null, progress: null, seen: null, overview: null };
const list = new List(() => ({ r: state.recording, outcome: state.filter.outcome, writes: state.filter.writes ? "true" : "", name: state.filter.name }), (position) => choose(position));
const box = byId("detail");

// ---- what is looked at

function hash() {
  const said = new URLSearchParams();
  if (state.recording !== null && state.recordings.length > 1) said.set("r", state.recording);
  if (state.n !== null) said.set("n", state.entry ?? state.n);
  if (state.marked !== null) said.set("d", state.marked);
  if (state.compared) said.set("with", state.compared[1]);
  return `#${said}`;
}
const remember = () => { const to = hash(); if (to !== (location.hash || "#")) history.replaceState(null, "", location.pathname + location.search + to); };

async function start() {
  theme(localStorage.getItem("trueup-theme"));
  await follow(true);
  await lookUp();
  performance.mark("trueup-ready");
  whatIsWrong();
  poll();
}

/** The recordings there are. */
async function follow(isFirst = false) {
  try {
    const found = await ask("recordings");
    state.against = found.against;
    state.inHost = found.in_a_host;
    const before = state.recordings.map((one) => one.id).join("\n");
    state.recordings = found.recordings;
    if (before !== found.recordings.map((one) => one.id).join("\n") || isFirst) fillRecordings();
  } catch (error) { gone(error); }
}

function fillRecordings() {
  const groups = new Map();
  for (const one of state.recordings) groups.set(one.guest ?? "", [...(groups.get(one.guest ?? "") ?? []), one]);
  const options = (some) => some.map((one) => el("option", { value: one.id, text: one.guest && groups.size < 2 ? `${one.guest} · ${one.key}` : one.key }));
  byId("recording").replaceChildren(...[...groups].flatMap(([guest, some]) => (groups.size > 1 && guest ? [el("optgroup", { label: guest }, ...options(some))] : options(some))));
  if (state.recording !== null) byId("recording").value = state.recording;
}

/** Goes where the address says. */
async function lookUp() {
  const said = new URLSearchParams(location.hash.slice(1));
  // Where the address says nothing: the recording that was written last.
  const latest = state.recordings.reduce((one, other) => ((other.changed_ms ?? 0) > (one?.changed_ms ?? -1) ? other : one), null);
  const wanted = said.get("r") ?? state.recording ?? latest?.id ?? null;
  const isKnown = state.recordings.some((one) => one.id === wanted);
  const number = (name) => (/^\d+$/.test(said.get(name) ?? "") ? Number(said.get(name)) : null);
  if (wanted !== state.recording) await openRecording(wanted);
  state.marked = number("d");
  list.markedN = state.marked;
  chosen();
  if (!isKnown) box.replaceChildren(detail.said(wanted === null ? "There is no recording yet." : `There is no recording ${wanted} here, or not any more: choose one above.`));
  else if (number("n") !== null) await go(number("n"), { centre: true });
  else if (number("with") === null) openNewest(said.get("r"));
  if (number("with") !== null && state.marked !== null) await showDifference(state.marked, number("with"));
}

/** Where the address names no decision: the newest problem of that recording, or of all; without one, the newest decision. */
async function openNewest(r) {
  const { recording } = state;
  Object.assign(state, { n: null, entry: null, compared: null, isEmpty: false });
  list.selected = null;
  document.body.classList.remove("reading");
  const isElsewhere = () => state.recording !== recording || state.n !== null;
  box.replaceChildren(detail.said("Looking for the newest problem…", true));
  try {
    const found = await ask("newest", { r });
    const to = found.problem ?? found.decision;
    if (isElsewhere()) return;
    if (!to) { box.replaceChildren(detail.said("Nothing is recorded yet.")); state.isEmpty = true; return; }
    if (to.r !== recording) await openRecording(to.r);
    if (state.n === null) await go(to.n, { read: false, isFound: true });
  } catch (error) { gone(error); }
}

/** What is wrong, and how guests and keys are. */
let looking = false;
async function whatIsWrong() {
  if (looking) return;
  looking = true;
  try {
    const [newest, host] = await Promise.all([ask("newest"), state.inHost ? fetch("/v1/status").then((answer) => answer.json()) : null]);
    showHealth(byId("health"), newest, host, state.recordings);
    if (state.isEmpty && state.n === null && newest.decision) openNewest(null);
  } catch (error) { gone(error); }
  looking = false;
}

async function openRecording(id) {
  Object.assign(state, { recording: id, n: null, entry: null, compared: null, marked: null, generation: null, seen: null, progress: null });
  state.filter = { outcome: "", writes: false, name: "" };
  list.total = 0;
  list.selected = null;
  list.clear();
  // Also what they are, or a recording with the same calls would not fill it.
  byId("name").replaceChildren();
  delete byId("name").dataset.names;
  filters();
  document.title = id === null ? "trueup journal" : `${id} – trueup journal`;
  byId("recording").value = id ?? "";
  if (id === null) { byId("empty").hidden = false; byId("empty").textContent = "There is no recording here yet. It is shown as soon as there is one."; return; }
  await refill();
  performance.mark("trueup-first-view");
}

/** Asks for the first rows anew. */
async function refill() {
  list.forget(0);
  list.total = 0;
  await list.load(0);
  overview();
}

list.onprogress = (progress, error) => (progress ? showProgress(progress) : gone(error));

/** What the server says of the recording. */
function showProgress(progress) {
  const isOther = state.generation !== null && progress.generation !== state.generation;
  const anchor = isOther ? list.row(list.newest)?.n : null;
  state.generation = progress.generation;
  const before = state.progress;
  state.progress = progress;
  // Positions changed, those of segments too.
  if (isOther) { list.forget(0); list.verdicts.clear(); }
  list.take(progress);
  const names = [...progress.names].sort();
  const select = byId("name");
  if (select.dataset.names !== names.join("\n")) {
    select.dataset.names = names.join("\n");
    select.replaceChildren(el("option", { value: "", text: "Every call" }), ...names.map((name) => el("option", { value: name, text: name })));
    select.value = state.filter.name;
  }
  const isFiltered = progress.listed !== progress.total || Object.values(state.filter).some(Boolean);
  byId("count").textContent = isFiltered ? `${number(progress.listed)} of ${several(progress.total, "decision")}` : several(progress.total, "decision");
  const status = byId("state");
  const isBusy = !progress.is_read && progress.read < progress.size;
  status.className = isBusy ? "busy" : "";
  const size = isBusy ? `reading: ${Math.floor((100 * progress.read) / Math.max(1, progress.size))} % of ${bytes(progress.size)}` : `${bytes(progress.size)} read, following`;
  status.textContent = size + (progress.is_full ? "; more decisions than are listed" : "");
  const notes = progress.notes.map((note) => el("div", { text: note }));
  if (progress.more_notes > 0) notes.push(el("div", { text: `and ${several(progress.more_notes, "more file")}` }));
  byId("notes").replaceChildren(...notes);
  byId("notes").hidden = notes.length === 0;
  byId("empty").hidden = progress.listed > 0 || isBusy;
  byId("empty").textContent = progress.total > 0 ? "No decision is let through by these filters." : "No decision is recorded yet.";
  const guests = new Set(progress.segments.map((one) => (one ? `${one.guest}@${one.version}` : "")));
  byId("listing").classList.toggle("one-guest", guests.size < 2 && !state.against);
  newer();
  if (isOther && anchor !== undefined && anchor !== null) restore(anchor);
  if (before && before.total !== progress.total) overviewSoon();
  const row = state.n !== null && list.selected !== null ? list.row(list.selected) : null;
  if (row && row.n === state.n && box.dataset.outcome === "open" && row.outcome !== "open" && !state.compared) show(state.n);
}

/** The list began elsewhere: the same decisions stay in sight. */
async function restore(anchor) {
  const placed = await ask("position", { ...list.query(), n: anchor });
  list.top(placed.position);
  if (state.n !== null) { const own = await ask("position", { ...list.query(), n: state.n }); list.selected = own.n === state.n ? own.position : null; }
  list.draw();
}

/** Says that there is more above than was seen. */
list.onpaint = (oldest, newest) => {
  if (list.total > 0 && newest === list.total - 1) state.seen = list.total;
  newer();
  here(oldest, newest);
  verdicts(oldest, newest);
};
function newer() {
  // What is read for the first time is not new.
  if (state.seen === null && state.progress?.is_read) state.seen = list.total;
  const unseen = state.seen === null ? 0 : list.total - state.seen;
  byId("newer").hidden = unseen <= 0;
  byId("newer").textContent = `${number(unseen)} new ↑`;
}

async function poll() {
  await new Promise((done) => setTimeout(done, document.hidden ? POLL_HIDDEN_MS : state.progress?.is_read === false ? POLL_MS / 4 : POLL_MS));
  try {
    if (state.recording === null || state.polls++ % 5 === 0) { await follow(); whatIsWrong(); }
    if (state.recording === null && state.recordings.length) await lookUp();
    else if (state.recording !== null) {
      const id = state.recording;
      const progress = await ask("progress", list.query());
      if (id === state.recording) showProgress(progress);
    }
  } catch (error) { gone(error); }
  poll();
}
state.polls = 1;

function gone(error) {
  byId("state").className = "gone";
  byId("state").textContent = error instanceof TypeError ? "trueup does not answer; trying again" : error.message;
}

// ---- decisions

let dwell = 0;
let choosing = null;
/** Chooses the decision at a position of the list. */
function choose(position, options = {}) {
  choosing = chooseRow(position, options);
  return choosing;
}

async function chooseRow(position, options) {
  if (list.total === 0) return;
  const at = Math.max(0, Math.min(list.total - 1, position));
  list.selected = at;
  list.reveal(at, options.centre);
  const row = list.row(at) ?? (await list.rowAt(at));
  if (!row || list.selected !== at) return;
  state.n = row.n;
  state.entry = options.entry ?? null;
  state.compared = null;
  // An address without a decision means the newest problem tomorrow too.
  if (!options.isFound) remember();
  clearTimeout(dwell);
  dwell = setTimeout(() => show(row.n, options.entry), options.now ? 0 : DWELL_MS);
  if (options.read !== false) document.body.classList.toggle("reading", options.read ?? true);
}

/** Goes to the decision that holds an entry, wherever that stands. */
async function go(n, options = {}) {
  try {
    let placed = await ask("position", { ...list.query(), n });
    if (placed.n === null) {
      state.filter = { outcome: "", writes: false, name: "" };
      filters();
      await refill();
      placed = await ask("position", { ...list.query(), n });
    }
    if (placed.n === null) {
      box.replaceChildren(detail.said(`No decision with entry ${n} is listed here: ${!placed.is_read ? "the recording is still being read" : state.progress?.is_full ? "only the first decisions are listed; `trueup journal serve` lists more" : "it was removed, or not recorded yet"}.`));
      const { recording, n: chosen } = state;
      // Until the recording is read, the entry may appear, unless something else is chosen meanwhile.
      if (!placed.is_read) setTimeout(() => state.recording === recording && state.n === chosen && go(n, options), POLL_MS);
      return;
    }
    if (placed.listed > list.total) list.resize(placed.listed);
    await choose(placed.position, { ...options, entry: n, centre: true, now: true });
  } catch (error) { gone(error); }
}

let showing = null;
async function show(n, entry = null) {
  showing?.abort();
  showing = new AbortController();
  try {
    const given = await ask("decision", { r: state.recording, n, count: 200 }, showing.signal);
    if (state.compared) return;
    box.dataset.outcome = given.row.outcome;
    box.dataset.n = given.row.n;
    box.replaceChildren(detail.decision(given, actions()));
    box.scrollTop = 0;
    if (entry !== null && entry !== n) detail.showEntry(box, entry);
  } catch (error) { if (error.name !== "AbortError") box.replaceChildren(detail.said(error.message)); }
}

const actions = () => ({ recording: state.recording, against: state.against, marked: state.marked, mark, go, openAll: () => detail.openAll(box), closeDifference, difference: (a, b) => { state.marked = a; list.markedN = a; chosen(); showDifference(a, b); },
  back: () => { document.body.classList.remove("reading"); list.view.focus(); },
  copy: async (event) => { const to = event.target; try { remember(); await navigator.clipboard.writeText(location.href); to.textContent = "Copied"; } catch { to.textContent = location.hash; } } });

// ---- differences

async function mark() {
  // What was chosen by the key before may still be on its way.
  await choosing;
  if (state.n === null) return;
  if (state.marked !== null && state.marked !== state.n) { showDifference(state.marked, state.n); return; }
  state.marked = state.marked === state.n ? null : state.n;
  list.markedN = state.marked;
  chosen();
  remember();
  list.draw();
  show(state.n);
}

function chosen() {
  const chip = byId("marked");
  chip.hidden = state.marked === null;
  if (state.marked === null) { chip.replaceChildren(); return; }
  chip.replaceChildren(`marked for a difference: ${state.marked}`, el("button", { type: "button", text: "go", onclick: () => go(state.marked) }), el("button", { type: "button", text: "forget", onclick: () => { state.marked = null; list.markedN = null; chosen(); remember(); list.draw(); if (state.n !== null && !state.compared) show(state.n); } }));
}

async function showDifference(a, b) {
  clearTimeout(dwell);
  showing?.abort();
  state.compared = [a, b];
  try {
    const given = await ask("difference", { r: state.recording, a, b });
    if (state.compared?.[0] !== a || state.compared[1] !== b) return;
    remember();
    box.dataset.outcome = "";
    box.replaceChildren(detail.difference(given, actions()));
    box.scrollTop = 0;
    document.body.classList.add("reading");
  } catch (error) { gone(error); }
}
function closeDifference() {
  state.compared = null;
  remember();
  if (state.n !== null) show(state.n); else openNewest(state.recording);
}

/** Segments are compared with the other guest, one after the other: those in sight; for the filter on problems, all of them. */
let judging = false;
async function verdicts(oldest, newest) {
  if (!state.against || judging) return;
  const seen = [...Array(Math.max(0, newest + 1 - oldest)).keys()].map((at) => list.row(newest - at)?.segment);
  const all = state.filter.outcome === "problems" ? list.segments.keys() : [];
  const segment = [...seen, ...all].find((one) => one !== undefined && !list.verdicts.has(one));
  if (segment === undefined) return;
  judging = true;
  const id = state.recording;
  let verdict;
  try { verdict = await ask("against", { r: id, segment }); } catch (error) { verdict = { error: error.message }; }
  judging = false;
  if (id !== state.recording) return;
  list.verdicts.set(segment, verdict);
  // It is a problem now: positions after it change.
  if (state.filter.outcome === "problems" && typeof verdict.diverged_at === "number") list.forget(0);
  list.draw();
}

// ---- the timeline

let soon = 0;
const overviewSoon = () => { if (!soon) soon = setTimeout(() => { soon = 0; overview(); }, 1500); };
async function overview() {
  if (state.recording === null) return;
  const svg = byId("overview");
  let given;
  try { given = await ask("overview", { ...list.query(), columns: COLUMNS }); } catch { return; }
  state.overview = given;
  const most = Math.max(1, ...given.columns.map((one) => one.ok + one.error + one.failed));
  const shape = (tag, attributes) => { const made = document.createElementNS("http://www.w3.org/2000/svg", tag); for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value); return made; };
  svg.setAttribute("viewBox", `0 0 ${COLUMNS} 44`);
  const drawn = [shape("line", { class: "c-base", x1: 0, x2: COLUMNS, y1: 43.5, y2: 43.5, "vector-effect": "non-scaling-stroke" }), shape("rect", { class: "c-seen", id: "seen", x: 0, y: 0, width: 0, height: 44, rx: 0 })];
  for (const [at, one] of given.columns.entries()) {
    const sum = one.ok + one.error + one.failed;
    if (sum === 0) continue;
    const tall = Math.max(3, (40 * Math.log2(1 + sum)) / Math.log2(1 + most));
    let y = 43;
    // A single failure among thousands is still seen.
    for (const [count, word, least] of [[one.ok - one.writes, "c-ok", 0], [one.writes, "c-writes", 2], [one.error, "c-error", 4], [one.failed, "c-failed", 4]]) {
      if (count <= 0) continue;
      const height = Math.max(least, (tall * count) / sum);
      y -= height;
      drawn.push(shape("rect", { class: word, x: at + 0.1, y: Math.max(0, y), width: 0.8, height }));
    }
  }
  svg.replaceChildren(...drawn);
  const label = (ms) => (given.to_ms === 0 ? "" : `${day(ms)} ${clock(ms).slice(0, 8)}`);
  byId("axis-from").textContent = label(given.from_ms);
  byId("axis-to").textContent = given.to_ms === 0 ? "" : `${label(given.to_ms)} UTC`;
  svg.setAttribute("aria-label", `${several(given.columns.reduce((sum, one) => sum + one.ok + one.error + one.failed, 0), "decision")} from ${moment(given.from_ms)} to ${moment(given.to_ms)}`);
  here(list.newest + 1 - list.screen, list.newest);
}

/** Marks the stretch of time that is in sight. */
function here(oldest, newest) {
  const seen = byId("seen");
  const given = state.overview;
  if (!seen || !given) return;
  const time = (position) => list.row(Math.max(0, Math.min(list.total - 1, position)))?.at_ms;
  const [begin, end] = [time(oldest), time(newest)];
  if (begin === undefined || end === undefined || begin === null || end === null) return;
  const at = (ms) => ((ms - given.from_ms) * (COLUMNS - 1)) / Math.max(1, given.to_ms - given.from_ms);
  seen.setAttribute("x", Math.max(0, at(begin)));
  seen.setAttribute("width", Math.max(1, at(end) - at(begin) + 1));
}

const svgTime = (event) => {
  const place = byId("overview").getBoundingClientRect();
  const part = Math.max(0, Math.min(1, (event.clientX - place.left) / place.width));
  return state.overview ? Math.round(state.overview.from_ms + part * (state.overview.to_ms - state.overview.from_ms)) : null;
};
byId("overview").addEventListener("pointermove", (event) => { const at = svgTime(event); byId("axis-at").textContent = at ? moment(at) : ""; });
byId("overview").addEventListener("pointerleave", () => { byId("axis-at").textContent = ""; });
byId("overview").addEventListener("click", async (event) => {
  const at = svgTime(event);
  if (at === null) return;
  const placed = await ask("position", { ...list.query(), at_ms: at });
  choose(Math.min(placed.position, placed.listed - 1), { centre: true, read: false });
});

// ---- filters

function filters() {
  const { outcome, writes, name } = state.filter;
  byId("all").setAttribute("aria-pressed", String(!outcome && !writes && !name));
  byId("problems").setAttribute("aria-pressed", String(outcome === "problems"));
  byId("writes").setAttribute("aria-pressed", String(writes));
  byId("name").value = name;
}
async function filter(change) {
  Object.assign(state.filter, change);
  filters();
  list.clear();
  list.selected = null;
  state.seen = null;
  await refill();
  if (state.n !== null) {
    const placed = await ask("position", { ...list.query(), n: state.n });
    if (placed.n === state.n) { list.selected = placed.position; list.reveal(placed.position, true); }
  }
}
byId("all").addEventListener("click", () => filter({ outcome: "", writes: false, name: "" }));
byId("problems").addEventListener("click", () => filter({ outcome: state.filter.outcome ? "" : "problems" }));
byId("writes").addEventListener("click", () => filter({ writes: !state.filter.writes }));
byId("name").addEventListener("change", (event) => filter({ name: event.target.value }));
byId("recording").addEventListener("change", async (event) => { await openRecording(event.target.value); remember(); openNewest(state.recording); list.view.focus(); });
byId("newer").addEventListener("click", () => { list.view.scrollTop = 0; list.view.focus(); });

// ---- keys

/** Down is older. */
const moves = { j: -1, ArrowDown: -1, k: 1, ArrowUp: 1 };
document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  if (event.target.closest("input, select, textarea")) return;
  const inDetail = box.contains(event.target);
  const { key } = event;
  const at = list.selected ?? list.newest + 1;
  const done = () => event.preventDefault();
  // Inside a decision, the keys that scroll scroll it.
  if (key in moves && !(inDetail && key.startsWith("Arrow"))) { done(); choose(at + (list.selected === null ? -1 : moves[key]), { read: false }); }
  else if (!inDetail && key === "PageDown") { done(); choose(at - list.screen + 1, { read: false }); }
  else if (!inDetail && key === "PageUp") { done(); choose(at + list.screen - 1, { read: false }); }
  else if (!inDetail && key === "Home") { done(); choose(list.total - 1, { read: false }); }
  else if (!inDetail && key === "End") { done(); choose(0, { read: false }); }
  else if (key === "d") mark();
  else if (key === "v") [...box.querySelectorAll(".actions .plain")].find((one) => one.textContent.startsWith("Compare with"))?.click();
  else if (key === "o") detail.openAll(box);
  else if (key === "p") byId("problems").click();
  else if (key === "w") byId("writes").click();
  else if (key === "t") byId("theme").click();
  else if (key === "?") byId("help").click();
  else if (key === "Enter" && !inDetail && event.target.closest("button, a") === null) { done(); document.body.classList.add("reading"); (box.querySelector(".ask") ?? box).focus(); }
  else if (key === "Escape") {
    done();
    if (state.compared) closeDifference();
    else if (inDetail || document.body.classList.contains("reading")) { document.body.classList.remove("reading"); list.view.focus(); }
    else if (state.marked !== null) { state.marked = null; list.markedN = null; chosen(); remember(); list.draw(); if (state.n !== null) show(state.n); }
  }
});

// ---- light and dark

const dark = matchMedia("(prefers-color-scheme: dark)");
function theme(wanted) {
  document.documentElement.dataset.theme = wanted ?? (dark.matches ? "dark" : "light");
}
dark.addEventListener("change", () => theme(localStorage.getItem("trueup-theme")));
byId("theme").addEventListener("click", () => {
  const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("trueup-theme", other);
  theme(other);
});
byId("help").addEventListener("click", () => byId("keys").showModal());
addEventListener("hashchange", () => { lookUp(); list.view.focus(); });

start();
list.view.focus();
