// Creates elements. Untrusted values become text nodes or attributes that cannot run; no HTML is parsed.

const SVG = "http://www.w3.org/2000/svg";

/** Attributes that may be set. A URL must stay on this origin. */
function set(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) {
    node.addEventListener(name.slice(2), value);
  } else if (name === "class") {
    node.setAttribute("class", value);
  } else if (name === "href") {
    const here = String(value);
    if (/^(\/(?!\/)|[?#])/.test(here)) node.setAttribute("href", here);
  } else if (name === "data") {
    Object.assign(node.dataset, value);
  } else if (name === "value" || name === "checked" || name === "disabled" || name === "open") {
    node[name] = value;
  } else {
    node.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * Text for display: characters that change the text direction are shown as `\u202e`, as in a terminal. A value with
 * one of them could otherwise reorder the text beside it.
 */
export const visible = (text) => String(text).replace(/[\u202a-\u202e\u2066-\u2069]/g, (c) => `\\u${c.charCodeAt(0).toString(16)}`);

function add(node, child) {
  if (child === null || child === undefined || child === false) return;
  if (Array.isArray(child)) for (const one of child) add(node, one);
  else node.append(child instanceof Node ? child : document.createTextNode(visible(child)));
}

function make(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) set(node, name, value);
  add(node, children);
  return node;
}

/** An element: `h("p", { class: "note" }, "text", other)`. */
export const h = (tag, attributes, ...children) => make(document.createElement(tag), attributes, children);

/** The same for SVG. */
export const s = (tag, attributes, ...children) => make(document.createElementNS(SVG, tag), attributes, children);

/** Replaces the children of an element. */
export function fill(node, ...children) {
  node.replaceChildren();
  add(node, children);
  return node;
}

/** Changes a text only if it differs, to keep the selection and not to repeat announcements. */
export function say(node, text) {
  const wanted = visible(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** An icon of 16 × 16 in the text colour. */
export function icon(name) {
  const drawn = s("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" });
  for (const d of ICONS[name] ?? []) drawn.append(s("path", { d }));
  return drawn;
}

const ICONS = {
  overview: ["M2 13.5V8.5M6 13.5V3.5M10 13.5V6.5M14 13.5V2.5"],
  events: ["M2.5 4h11M2.5 8h11M2.5 12h7"],
  dead: ["M8 2.2 14.2 13H1.8ZM8 6.3v3M8 11.2v.1"],
  away: ["M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2ZM3.9 3.9l8.2 8.2"],
  registers: ["M3 2.5h10v11H3ZM5.5 5.5h5M5.5 8h5M5.5 10.5h2.5"],
  sources: ["M2.5 4.5h4l3 7h4M2.5 11.5h4l.9-2M8.6 6.5l.9-2h4"],
  explain: ["M6 6.2a2 2 0 1 1 2.8 1.9c-.6.3-.8.7-.8 1.4M8 12v.1M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8Z"],
  find: ["M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9ZM10.4 10.4 14 14"],
  menu: ["M2.5 4.5h11M2.5 8h11M2.5 11.5h11"],
  close: ["M4 4l8 8M12 4l-8 8"],
  copy: ["M5.5 5.5h8v8h-8ZM10.5 5.5v-3h-8v8h3"],
  check: ["M3 8.5l3.2 3L13 4.5"],
  replay: ["M13 8a5 5 0 1 1-1.6-3.7M13.2 2v3h-3"],
  stop: ["M4 4h8v8H4Z"],
  forget: ["M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.6 8.5h5.8l.6-8.5"],
  sun: ["M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6ZM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1"],
  moon: ["M13 9.6A5.5 5.5 0 0 1 6.4 3 5.5 5.5 0 1 0 13 9.6Z"],
  system: ["M2 3h12v8H2ZM6 13.5h4"],
  out: ["M9.5 3H3v10h6.5M7 8h7M11.5 5.5 14 8l-2.5 2.5"],
  right: ["M6 3.5 10.5 8 6 12.5"],
  key: ["M1.5 4h13v8h-13ZM4 6.8h.1M6.7 6.8h.1M9.3 6.8h.1M12 6.8h.1M5 9.4h6"],
};
