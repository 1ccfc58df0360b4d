// The list of decisions: of however many, only the rows on the screen are elements. Rows come from the server by pages and
// are kept for a while. Knows positions; which decision is looked at is the page's.

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
    this.total = 0;
    this.names = [];
    this.segments = [];
    this.verdicts = new Map();
    this.selected = null;
    this.markedN = null;
    this.onstanding = () => {};
    this.drawing = false;
    this.view.addEventListener("scroll", () => this.draw(), { passive: true });
    this.view.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.view.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row && row.dataset.at !== undefined) this.picked(Number(row.dataset.at));
    });
    new ResizeObserver(() => this.draw()).observe(this.view);
  }

  /** Rows that fit. */
  get screen() { return Math.max(1, Math.floor(this.view.clientHeight / ROW)); }
  get height() { return Math.min(this.total * ROW, HEIGHT_MAX); }
  /** Rows a pixel stands for, against what it would. */
  get factor() {
    const room = this.height - this.view.clientHeight;
    return room > 0 && this.total * ROW > HEIGHT_MAX ? (this.total * ROW - this.view.clientHeight) / room : 1;
  }
  /** The first row that is seen, in part of rows. */
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
    for (const [page, abort] of [...this.asked]) if ((page + 1) * PAGE > fromPosition) { abort.abort(); this.asked.delete(page); }
  }

  /** What the server says of the recording; rows that may have changed are asked for again. */
  take(standing) {
    const old = this.total;
    this.names = standing.names;
    this.segments = standing.segments;
    if (standing.listed !== old) {
      this.forget(Math.min(old, standing.listed) - 1);
      this.total = standing.listed;
      this.space.style.height = `${this.height}px`;
      this.view.setAttribute("aria-rowcount", String(this.total));
    }
    this.draw();
  }

  row(position) { return this.pages.get(Math.floor(position / PAGE))?.[position % PAGE]; }

  async load(page) {
    if (this.pages.has(page) || this.asked.has(page)) return;
    const abort = new AbortController();
    this.asked.set(page, abort);
    try {
      const answer = await ask("rows", { ...this.query(), from: page * PAGE, count: PAGE }, abort.signal);
      if (this.asked.get(page) !== abort) return;
      this.pages.set(page, answer.rows);
      while (this.pages.size > PAGES_KEPT) this.pages.delete(this.pages.keys().next().value);
      this.onstanding(answer.standing);
      this.draw();
    } catch (error) {
      if (error.name !== "AbortError") this.onstanding(null, error);
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
    const screen = this.view.clientHeight / ROW;
    let to = first;
    if (centre && (position < first || position + 1 > first + screen)) to = position - screen / 2;
    else if (position < first) to = position;
    else if (position + 1 > first + screen) to = position + 1 - screen;
    if (to !== first) this.view.scrollTop = (Math.max(0, to) * ROW) / this.factor;
    this.draw();
  }

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
      const position = from + at;
      row.element.hidden = position >= to;
      if (position < to) this.fill(row, position);
    }
    const active = this.selected !== null && this.selected >= from && this.selected < to ? `row-${this.selected - from}` : null;
    if (active) this.view.setAttribute("aria-activedescendant", active); else this.view.removeAttribute("aria-activedescendant");
    // Half a page ahead in both directions: what is scrolled to is there already.
    const ahead = PAGE / 2;
    for (let page = Math.floor(Math.max(0, from - ahead) / PAGE); page * PAGE < Math.min(this.total, to + ahead); page += 1) this.load(page);
    if (this.onpaint) this.onpaint(Math.ceil(this.first), to);
  }

  fill(row, position) {
    const { element, cells } = row;
    const given = this.row(position);
    element.dataset.at = position;
    element.setAttribute("aria-rowindex", String(position + 1));
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
    const before = this.row(position - 1);
    const isNewDay = given.at_ms !== null && (!before || before.at_ms === null || day(before.at_ms) !== day(given.at_ms));
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
    const standing = this.verdicts.get(row.segment);
    if (!standing || standing.error) return null;
    if (standing.diverged_at === null) return standing.same ? "same" : null;
    if (standing.diverged_at > row.n + row.asks + 1) return "same";
    return standing.diverged_at >= row.n ? "differs" : null;
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
