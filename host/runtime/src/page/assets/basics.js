// Building elements, asking the server, writing numbers and times. Text from a recording becomes text nodes, never markup.

/** An element: attributes by name, `class`, `text` and `on...` handlers among them, then children. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** The address of a question, with what is not empty. */
function address(path, query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  return `api/${path}?${new URLSearchParams(given)}`;
}

/** Asks, and throws the server's one line where it refuses. */
export async function ask(path, query = {}, signal = undefined) {
  const response = await fetch(address(path, query), { signal });
  const answer = await response.json().catch(() => ({ error: `HTTP ${response.status}` }));
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

const grouped = new Intl.NumberFormat("en");
export const number = (value) => grouped.format(value);
export const several = (count, one, many = one + "s") => `${number(count)} ${count === 1 ? one : many}`;

const pad = (value, digits = 2) => String(value).padStart(digits, "0");
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

export function clock(ms) {
  if (ms === null) return "";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return `${ms} ms`;
  return `${pad(at.getUTCHours())}:${pad(at.getUTCMinutes())}:${pad(at.getUTCSeconds())}.${pad(at.getUTCMilliseconds(), 3)}`;
}

export function day(ms) {
  const at = new Date(ms);
  return Number.isNaN(at.getTime()) ? "" : `${MONTHS[at.getUTCMonth()]} ${pad(at.getUTCDate())}`;
}

export function moment(ms) {
  const at = new Date(ms);
  return ms === null || Number.isNaN(at.getTime()) ? "" : `${at.getUTCFullYear()}-${pad(at.getUTCMonth() + 1)}-${pad(at.getUTCDate())} ${clock(ms)} UTC`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${ms} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} m ${Math.floor((ms % 60_000) / 1000)} s`;
  return `${(ms / 3_600_000).toFixed(1)} h`;
}

export function bytes(count) {
  const units = ["bytes", "KiB", "MiB", "GiB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${at === 0 ? count : count.toFixed(count < 10 ? 1 : 0)} ${units[at]}`;
}

export const digest = (text) => text.slice(0, "sha256:".length + 12);

/** Outcome as a shape and a word; the colour is the style sheet's. */
export function outcome(word) {
  return el("span", { class: `outcome ${word}` }, el("i", { class: `mark ${word}`, "aria-hidden": "true" }), word);
}
