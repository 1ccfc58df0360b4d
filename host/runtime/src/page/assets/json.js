// JSON as a tree to open and close. Numbers stay the text that was written: those above 2^53 are not what JavaScript makes
// of them. Children are built when they are first seen.

import { el, number } from "./basics.js";

const OPEN_DEPTH = 2;
const OPEN_CHILDREN = 24;
const CHILDREN_AT_ONCE = 200;
const STRING_SHOWN = 400;

/** Reads JSON text; throws where it is none. */
export function parse(text) {
  let at = 0;
  const fail = () => { throw new SyntaxError(`not JSON at ${at}`); };
  const blank = () => { while (" \t\n\r".includes(text[at]) && at < text.length) at += 1; };
  const string = () => {
    const begin = at;
    at += 1;
    while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
    if (at >= text.length) fail();
    at += 1;
    return JSON.parse(text.slice(begin, at));
  };
  const list = (close, each) => {
    const items = [];
    at += 1;
    blank();
    if (text[at] === close) { at += 1; return items; }
    for (;;) {
      items.push(each());
      blank();
      if (text[at] === ",") { at += 1; blank(); } else if (text[at] === close) { at += 1; return items; } else fail();
    }
  };
  const value = () => {
    blank();
    const first = text[at];
    if (first === "{") {
      return { kind: "object", items: list("}", () => {
        if (text[at] !== '"') fail();
        const key = string();
        blank();
        if (text[at] !== ":") fail();
        at += 1;
        return [key, value()];
      }) };
    }
    if (first === "[") { let index = 0; return { kind: "array", items: list("]", () => [index++, value()]) }; }
    if (first === '"') return { kind: "string", value: string() };
    const token = /[^\s,\]}]+/y;
    token.lastIndex = at;
    const found = token.exec(text);
    if (!found || !/^(-?\d+(\.\d+)?([eE][+-]?\d+)?|true|false|null)$/.test(found[0])) fail();
    at += found[0].length;
    return { kind: /^[-\d]/.test(found[0]) ? "number" : "word", value: found[0] };
  };
  const read = value();
  blank();
  if (at < text.length) fail();
  return read;
}

/** A value as the server gives it: a tree, or text where it is none; with a way to all of it where it was cut. */
export function shown(value, whole, isText = false) {
  const box = el("div", { class: "json" });
  const put = (given) => {
    let content;
    try {
      if (isText || given.cut_from) throw new SyntaxError("text");
      content = root(parse(given.text));
    } catch (error) {
      // A stack that is too small for what is nested too deep is no other case.
      if (!(error instanceof SyntaxError || error instanceof RangeError)) throw error;
      content = el("pre", { class: "text", text: given.text });
    }
    box.replaceChildren(content);
    if (given.cut_from && whole) {
      const more = el("button", { type: "button", class: "more", text: `the first ${number(given.text.length)} of ${number(given.cut_from)} bytes: show all` });
      more.addEventListener("click", async () => {
        more.disabled = true;
        try { const all = await whole(); put({ ...all, cut_from: all.cut_from ?? null }); } catch (error) { more.textContent = error.message; }
      });
      box.append(more);
    }
  };
  put(value);
  return box;
}

const keyed = (key) => (key === null ? [] : [el("span", { class: typeof key === "number" ? "index" : "key", text: String(key) }), el("span", { class: "colon", text: ": " })]);

/** The outermost fields stand there without anything to open them. */
function root(node) {
  if (!node.items || node.items.length === 0) return tree(node, null, 0);
  const below = el("div", { class: "below" });
  children(below, node, 0);
  return below;
}

function tree(node, key, depth) {
  const line = el("div", { class: "line" });
  if (node.kind !== "object" && node.kind !== "array") {
    line.append(el("span", { class: "twist" }), ...keyed(key), leaf(node));
    return line;
  }
  const [open, close] = node.kind === "object" ? ["{", "}"] : ["[", "]"];
  if (node.items.length === 0) {
    line.append(el("span", { class: "twist" }), ...keyed(key), el("span", { class: "brace", text: open + close }));
    return line;
  }
  const box = el("div", { class: "node" });
  const below = el("div", { class: "below" });
  const preview = el("span", { class: "preview", text: brief(node) });
  const twist = el("button", { type: "button", class: "twist", "aria-label": `${key ?? "value"}: open or close` });
  let built = false;
  const set = (isOpen) => {
    if (isOpen && !built) { built = true; children(below, node, depth); }
    below.hidden = !isOpen;
    preview.hidden = isOpen;
    twist.setAttribute("aria-expanded", String(isOpen));
  };
  const toggle = () => set(below.hidden);
  twist.addEventListener("click", toggle);
  preview.addEventListener("click", toggle);
  line.append(twist, ...keyed(key), el("span", { class: "brace", text: node.kind === "array" ? `[${node.items.length}]` : "" }), preview);
  box.append(line, below);
  set(depth < OPEN_DEPTH && node.items.length <= OPEN_CHILDREN);
  return box;
}

function children(into, node, depth) {
  let from = 0;
  const more = el("button", { type: "button", class: "more" });
  const add = () => {
    const next = node.items.slice(from, from + CHILDREN_AT_ONCE);
    more.remove();
    into.append(...next.map(([key, child]) => tree(child, key, depth + 1)));
    from += next.length;
    if (from < node.items.length) { more.textContent = `${number(node.items.length - from)} more`; into.append(more); }
  };
  more.addEventListener("click", add);
  add();
}

function leaf(node) {
  if (node.kind !== "string") return el("span", { class: node.kind, text: node.value });
  const span = el("span", { class: "string" });
  const quoted = (text) => JSON.stringify(text);
  if (node.value.length <= STRING_SHOWN) { span.textContent = quoted(node.value); return span; }
  span.textContent = quoted(node.value.slice(0, STRING_SHOWN));
  const more = el("button", { type: "button", class: "more", text: `${number(node.value.length)} characters` });
  more.addEventListener("click", () => { span.textContent = quoted(node.value); });
  span.append(" ", more);
  return span;
}

/** A value on one line, cut. */
export function brief(node, room = 90) {
  const write = (node, left) => {
    if (left <= 0) return "…";
    if (node.kind === "string") return JSON.stringify(node.value.length > left ? `${node.value.slice(0, left)}…` : node.value);
    if (node.kind === "number" || node.kind === "word") return node.value;
    let text = node.kind === "object" ? "{" : "[";
    for (const [at, [key, child]] of node.items.entries()) {
      if (at > 0) text += ", ";
      if (text.length >= left) { text += "…"; break; }
      if (node.kind === "object") text += `${key}: `;
      text += write(child, left - text.length);
    }
    return text + (node.kind === "object" ? "}" : "]");
  };
  return write(node, room);
}

/** The same of JSON text. */
export function briefly(text, room = 90) {
  try { return brief(parse(text.length > 4000 ? "" : text), room); } catch { return text.slice(0, room) + (text.length > room ? "…" : ""); }
}
