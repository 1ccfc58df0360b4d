// The list of decisions, newest first: of however many, only the rows on the screen are elements. Rows come from the server
// by pages and are kept for a while. Knows positions, counted from the oldest, so that a new decision moves none; which
// decision is looked at is the page's.

import { ask, byId, clock, day, duration, el, moment, number } from "./basics.js";

const ROW = 28;
const PAGE = 200;
const PAGES_KEPT = 40;
/** Browsers draw no taller elements; longer lists move by a factor. */
const HEIGHT_MAX = 12_000_000;
/** Rows beside those that are seen. */
const AROUND = 8;
const LOG_LONGEST = Math.log10(120_000);

export class List {
  /** `query` gives recording and filter; `picked` is told the position and row that were chosen. */
  constructor(query, picked) {
    this.query = query;
    this.picked = picked;
    this.view = byId("list");
    this.space = this.view.querySelector(".space");
    this.rows = this.view.querySelector(".rows");
    this.pool = [];
    this.pages = new Map();
    this.asked = new Map();
    this.stale = new Set();
    this.total = 0;
    this.names = [];
    this.segments = [];
    this.verdicts = new Map();
    this.selected = null;
    this.markedN = null;
    this.onprogress = () => {};
    this.drawing = false;
    this.view.addEventListener("scroll", () => this.draw(), { passive: true });
    this.view.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.view.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row && row.dataset.at !== undefined) this.picked(Number(row.dataset.at));
    });
    new ResizeObserver(() => this.resized()).observe(this.view);
  }

  /** The chosen row stays in sight if it was. */
  resized() {
    const below = this.selected === null ? -1 : this.line(this.selected) - this.first;
    if (below > -1 && below < this.room) this.reveal(this.selected);
    this.room = this.view.clientHeight / ROW;
    this.draw();
  }

  /** Rows that fit. */
  get screen() { return Math.max(1, Math.floor(this.view.clientHeight / ROW)); }
  get height() { return Math.min(this.total * ROW, HEIGHT_MAX); }
  /** Rows a pixel stands for, against what it would. */
  get factor() {
    const room = this.height - this.view.clientHeight;
    return room > 0 && this.total * ROW > HEIGHT_MAX ? (this.total * ROW - this.view.clientHeight) / room : 1;
  }
  /** How far below the newest a position is: the list's lines from above. And the other way round. */
  line(position) { return this.total - 1 - position; }
  /** The newest position that is seen in full. */
  get newest() { return this.line(Math.ceil(this.first)); }
  /** The first line that is seen, in part of lines. */
  get first() { return (this.view.scrollTop * this.factor) / ROW; }

  wheel(event) {
    if (this.factor === 1 || event.ctrlKey) return;
    event.preventDefault();
    const by = event.deltaMode === 1 ? event.deltaY * ROW : event.deltaY;
    this.view.scrollTop += by / this.factor || Math.sign(by);
  }

  /** Another recording or filter. */
  clear() {
    this.forget(0);
    this.verdicts.clear();
    this.view.scrollTop = 0;
  }

  forget(fromPosition) {
    for (const page of [...this.pages.keys()]) if ((page + 1) * PAGE > fromPosition) this.pages.delete(page);
    this.renew(fromPosition);
  }

  /** Rows from here on are asked for again; until they come, the known ones are shown. */
  renew(fromPosition) {
    for (const page of this.pages.keys()) if ((page + 1) * PAGE > fromPosition) this.stale.add(page);
    for (const [page, abort] of [...this.asked]) if ((page + 1) * PAGE > fromPosition) { abort.abort(); this.asked.delete(page); }
  }

  /** What the server says of the recording; rows that may have changed are asked for again. */
  take(progress) {
    const old = this.total;
    this.names = progress.names;
    this.segments = progress.segments;
    // The last one may have ended meanwhile.
    if (progress.read !== this.read) this.renew(Math.min(old, progress.listed) - 1);
    this.read = progress.read;
    if (progress.listed < old) this.forget(progress.listed - 1);
    if (progress.listed !== old) this.resize(progress.listed);
    this.draw();
  }

  /** At the top, the newest stay in sight; elsewhere, those that are. */
  resize(total) {
    const { scrollTop } = this.view;
    const more = total - this.total;
    this.total = total;
    this.space.style.height = `${this.height}px`;
    this.view.setAttribute("aria-rowcount", String(total));
    if (scrollTop > 0 && more > 0) this.view.scrollTop = scrollTop + (more * ROW) / this.factor;
  }

  row(position) { return this.pages.get(Math.floor(position / PAGE))?.[position % PAGE]; }

  async load(page) {
    if ((this.pages.has(page) && !this.stale.has(page)) || this.asked.has(page)) return;
    const abort = new AbortController();
    this.asked.set(page, abort);
    this.stale.delete(page);
    try {
      const answer = await ask("rows", { ...this.query(), from: page * PAGE, count: PAGE }, abort.signal);
      if (this.asked.get(page) !== abort) return;
      this.onprogress(answer.progress);
      this.pages.set(page, answer.rows);
      this.stale.delete(page);
      while (this.pages.size > PAGES_KEPT) this.pages.delete(this.pages.keys().next().value);
      this.draw();
    } catch (error) {
      if (error.name !== "AbortError") this.onprogress(null, error);
    } finally {
      if (this.asked.get(page) === abort) this.asked.delete(page);
    }
  }

  /** The row at a position, once it is there. */
  async rowAt(position) {
    const page = Math.floor(position / PAGE);
    for (let tries = 0; tries < 50 && !this.row(position); tries += 1) {
      await this.load(page);
      if (!this.row(position)) await new Promise((done) => setTimeout(done, 40));
    }
    return this.row(position);
  }

  /** Scrolls so that a position is seen, and no further than needed; `centre` where it should not stand at the edge. */
  reveal(position, centre = false) {
    const first = this.first;
    const line = this.line(position);
    const screen = this.view.clientHeight / ROW;
    let to = first;
    if (centre && (line < first || line + 1 > first + screen)) to = line - screen / 2;
    else if (line < first) to = line;
    else if (line + 1 > first + screen) to = line + 1 - screen;
    if (to !== first) this.view.scrollTop = (Math.max(0, to) * ROW) / this.factor;
    this.draw();
  }

  /** Scrolls so that a position is the first that is seen. */
  top(position) { this.view.scrollTop = (this.line(position) * ROW) / this.factor; }

  draw() {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => { this.drawing = false; this.paint(); });
  }

  paint() {
    const from = Math.max(0, Math.floor(this.first) - AROUND);
    const to = Math.min(this.total, Math.ceil(this.first + this.view.clientHeight / ROW) + AROUND);
    while (this.pool.length < to - from) { const row = makeRow(this.pool.length); this.pool.push(row); this.rows.append(row.element); }
    const top = this.view.scrollTop - (this.first - from) * ROW;
    this.rows.style.transform = `translateY(${top}px)`;
    for (const [at, row] of this.pool.entries()) {
      row.element.hidden = from + at >= to;
      if (from + at < to) this.fill(row, this.line(from + at));
    }
    const line = this.selected === null ? -1 : this.line(this.selected);
    const active = line >= from && line < to ? `row-${line - from}` : null;
    if (active) this.view.setAttribute("aria-activedescendant", active); else this.view.removeAttribute("aria-activedescendant");
    // Half a page ahead in both directions: what is scrolled to is there already.
    const ahead = PAGE / 2;
    const newest = Math.min(this.total - 1, this.line(from - ahead));
    for (let page = Math.floor(newest / PAGE); page >= 0 && (page + 1) * PAGE > this.line(to + ahead); page -= 1) this.load(page);
    if (this.onpaint) this.onpaint(this.line(to - 1), this.newest);
  }

  fill(row, position) {
    const { element, cells } = row;
    const given = this.row(position);
    element.dataset.at = position;
    element.setAttribute("aria-rowindex", String(this.line(position) + 1));
    const isSelected = position === this.selected;
    element.setAttribute("aria-selected", String(isSelected));
    element.classList.toggle("selected", isSelected);
    element.classList.toggle("waiting", !given);
    element.classList.toggle("marked", Boolean(given && given.n === this.markedN));
    element.classList.toggle("lost", Boolean(given?.rolled_back));
    element.classList.remove("differs");
    const text = (cell, value) => { if (cell.data !== value) cell.data = value; };
    if (!given) { for (const cell of Object.values(cells)) if (cell.nodeType === 3) text(cell, ""); cells.outcomeBox.className = "outcome"; cells.mark.className = "mark"; cells.bar.style.width = "0"; return; }
    element.dataset.n = given.n;
    cells.mark.className = `mark ${given.outcome}`;
    cells.outcomeBox.className = `outcome ${given.outcome}`;
    text(cells.outcome, given.outcome);
    text(cells.n, String(given.n));
    const above = this.row(position + 1);
    const isNewDay = given.at_ms !== null && (!above || above.at_ms === null || day(above.at_ms) !== day(given.at_ms));
    text(cells.day, given.at_ms === null ? "" : day(given.at_ms));
    cells.dayBox.classList.toggle("same", !isNewDay);
    text(cells.time, clock(given.at_ms));
    const name = this.names[given.name] ?? "";
    const end = name.indexOf(".") + 1;
    text(cells.of, name.slice(0, end));
    text(cells.name, name.slice(end));
    text(cells.took, duration(given.took_ms));
    const long = given.took_ms ? Math.min(1, Math.log10(1 + given.took_ms) / LOG_LONGEST) : 0;
    cells.bar.style.width = `${Math.round(long * 100)}%`;
    text(cells.asks, given.asks ? number(given.asks) : "");
    text(cells.writes, given.writes ? number(given.writes) : "");
    const who = this.segments[given.segment];
    text(cells.who, who ? `${who.guest}@${who.version}` : "");
    const verdict = this.verdict(given);
    text(cells.verdict, verdict === "differs" ? "≠" : verdict === "same" ? "=" : "");
    element.classList.toggle("differs", verdict === "differs");
    element.title = given.rolled_back ? "rolled back: what it did was lost" : given.at_ms === null ? "" : moment(given.at_ms);
  }

  /** What is known of a row held against another guest. */
  verdict(row) {
    const verdict = this.verdicts.get(row.segment);
    if (!verdict || verdict.error) return null;
    if (verdict.diverged_at === null) return verdict.same ? "same" : null;
    if (verdict.diverged_at > row.n + row.asks + 1) return "same";
    return verdict.diverged_at >= row.n ? "differs" : null;
  }
}

function makeRow(at) {
  const node = () => document.createTextNode("");
  const cells = { outcome: node(), n: node(), day: node(), time: node(), of: node(), name: node(), took: node(), asks: node(), writes: node(), who: node(), verdict: node(), mark: el("i", { class: "mark", "aria-hidden": "true" }), bar: el("i", { class: "bar" }) };
  // In the first column, which every width of the page shows.
  cells.outcomeBox = el("span", { class: "outcome" }, cells.mark, cells.outcome, el("b", { class: "compared" }, cells.verdict));
  cells.dayBox = el("small", {}, cells.day);
  const cell = (name, ...children) => el("span", { class: name, role: "gridcell" }, ...children);
  const element = el("div", { class: "row", role: "row", id: `row-${at}` },
    cell("cell", cells.outcomeBox), cell("num n", cells.n), cell("time", cells.dayBox, cells.time), cell("name", el("span", { class: "of" }, cells.of), cells.name),
    cell("took", el("span", { class: "track" }, cells.bar), el("span", { class: "ms" }, cells.took)), cell("num", cells.asks), cell("num writes", cells.writes),
    cell("who", cells.who));
  return { element, cells };
}
