// A body view: JSON as a folding tree with numbers as written, or plain text.

import { h } from "./dom.js";

/** A deeper or longer body is shown as text. */
const NODES_MAX = 20_000;
const DEPTH_MAX = 64;

/** A JSON parser that keeps the text of numbers: an id of 17 digits must not be rounded. */
class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.nodes = 0;
  }

  space() {
    while (" \t\r\n".includes(this.text[this.at] ?? "x")) this.at += 1;
  }

  string() {
    const from = this.at;
    this.at += 1;
    while (this.text[this.at] !== '"') {
      if (this.at >= this.text.length) throw new SyntaxError("a string does not end");
      this.at += this.text[this.at] === "\\" ? 2 : 1;
    }
    this.at += 1;
    return JSON.parse(this.text.slice(from, this.at));
  }

  value(depth = 0) {
    this.nodes += 1;
    if (this.nodes > NODES_MAX || depth > DEPTH_MAX) throw new RangeError("too much to fold");
    this.space();
    const first = this.text[this.at];
    if (first === '"') return { kind: "text", value: this.string() };
    if (first === "{") return this.many("object", "}", depth);
    if (first === "[") return this.many("list", "]", depth);
    const word = /[^\s,\]}]+/y;
    word.lastIndex = this.at;
    const found = word.exec(this.text)?.[0] ?? "";
    JSON.parse(found);
    this.at += found.length;
    return { kind: /^[tfn]/.test(found) ? "word" : "number", value: found };
  }

  many(kind, end, depth) {
    const items = [];
    this.at += 1;
    this.space();
    while (this.text[this.at] !== end) {
      let name = null;
      if (kind === "object") {
        this.space();
        if (this.text[this.at] !== '"') throw new SyntaxError("a name is missing");
        name = this.string();
        this.space();
        if (this.text[this.at] !== ":") throw new SyntaxError("a colon is missing");
        this.at += 1;
      }
      items.push([name, this.value(depth + 1)]);
      this.space();
      if (this.text[this.at] === ",") this.at += 1;
      else if (this.text[this.at] !== end) throw new SyntaxError("it does not end");
      this.space();
    }
    this.at += 1;
    return { kind, items };
  }
}

/** The tree, or null if it is not JSON. */
export function tree(text) {
  try {
    const reader = new Reader(text);
    const value = reader.value();
    reader.space();
    if (reader.at !== text.length) return null;
    return h("div", { class: "json" }, draw(null, value, 0));
  } catch {
    return null;
  }
}

function draw(name, { kind, value, items }, depth) {
  const label = name === null ? null : h("span", { class: "j-key" }, JSON.stringify(name), ": ");
  if (items === undefined) return h("div", { class: "leaf" }, label, h("span", { class: `j-${kind}` }, kind === "text" ? JSON.stringify(value) : value));
  const [open, close] = kind === "object" ? ["{", "}"] : ["[", "]"];
  if (!items.length) return h("div", { class: "leaf" }, label, open + close);
  const noun = kind === "object" ? "name" : "item";
  const node = h("details", { open: depth < 2 }, h("summary", {}, label, open, h("span", { class: "faint" }, ` ${items.length} ${noun}${items.length === 1 ? "" : "s"} `), close));
  const grow = () => {
    if (node.childElementCount > 1) return;
    for (const [key, item] of items) node.append(draw(key, item, depth + 1));
  };
  if (depth < 2) grow();
  else node.addEventListener("toggle", grow, { once: true });
  return node;
}
