// Output of commands with its colours: SGR sequences of ECMA-48 with 16, 256 and all colours. Other control sequences
// (cursor, title, clearing) are dropped; `\r` overwrites the line. Text becomes text nodes.

import { visible } from "./dom.js";

const PALETTE = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const CUBE = [0, 95, 135, 175, 215, 255];
/** Lines kept on the page; the whole output is behind "raw". */
export const LINES_MAX = 5000;

const plain = () => ({ fg: null, bg: null, bold: false, dim: false, italic: false, underline: false, strike: false, inverse: false });

/** A screen that output is written to, piece by piece. */
export class Screen {
  constructor(node) {
    this.node = node;
    this.style = plain();
    this.rest = "";
    this.cut = 0;
    this.clear();
  }

  clear() {
    this.node.replaceChildren();
    this.style = plain();
    this.rest = "";
    this.newLine();
  }

  newLine() {
    this.line = document.createElement("span");
    this.line.className = "line";
    this.node.append(this.line);
    this.over = false;
    if (this.node.childElementCount > LINES_MAX) {
      this.node.firstElementChild.remove();
      this.cut += 1;
    }
  }

  write(piece) {
    const text = this.rest + piece;
    this.rest = "";
    let at = 0;
    let from = 0;
    while (at < text.length) {
      const code = text.charCodeAt(at);
      if (code >= 32 && code !== 127 && (code < 128 || code > 159)) {
        at += 1;
        continue;
      }
      this.put(text.slice(from, at));
      if (code === 27) {
        const end = sequenceEnd(text, at);
        if (end === 0) {
          // Incomplete: wait for more, up to a limit.
          if (text.length - at < 4096) this.rest = text.slice(at);
          return;
        }
        this.obey(text.slice(at, end));
        at = end;
      } else {
        if (code === 10) this.newLine();
        else if (code === 13) this.over = true;
        else if (code === 9) this.put("\t");
        at += 1;
      }
      from = at;
    }
    this.put(text.slice(from));
  }

  put(raw) {
    if (!raw) return;
    const text = visible(raw);
    if (this.over) {
      this.line.replaceChildren();
      this.over = false;
    }
    const last = this.line.lastChild;
    const key = JSON.stringify(this.style);
    if (last && this.key === key) last.textContent += text;
    else this.line.append(dressed(text, this.style));
    this.key = key;
  }

  obey(sequence) {
    const found = /^\x1b\[([0-9;:]*)m$/.exec(sequence);
    if (found) this.dress(found[1].split(/[;:]/).map((part) => Number(part || 0)));
    else if (/^\x1b\[[012]?K$/.test(sequence) && this.over) this.line.replaceChildren();
  }

  dress(codes) {
    const style = this.style;
    for (let i = 0; i < codes.length; i += 1) {
      const code = codes[i];
      if (code === 0) Object.assign(style, plain());
      else if (code === 1) style.bold = true;
      else if (code === 2) style.dim = true;
      else if (code === 3) style.italic = true;
      else if (code === 4) style.underline = true;
      else if (code === 7) style.inverse = true;
      else if (code === 9) style.strike = true;
      else if (code === 22) style.bold = style.dim = false;
      else if (code === 23) style.italic = false;
      else if (code === 24) style.underline = false;
      else if (code === 27) style.inverse = false;
      else if (code === 29) style.strike = false;
      else if (code >= 30 && code <= 37) style.fg = PALETTE[code - 30];
      else if (code >= 40 && code <= 47) style.bg = PALETTE[code - 40];
      else if (code >= 90 && code <= 97) style.fg = `bright-${PALETTE[code - 90]}`;
      else if (code >= 100 && code <= 107) style.bg = `bright-${PALETTE[code - 100]}`;
      else if (code === 39) style.fg = null;
      else if (code === 49) style.bg = null;
      else if (code === 38 || code === 48) i = this.wide(codes, i, code === 38 ? "fg" : "bg");
    }
  }

  /** Parses 38;5;n and 38;2;r;g;b; returns the end. */
  wide(codes, at, side) {
    const byte = (i) => Math.min(255, Math.max(0, codes[i] || 0));
    if (codes[at + 1] === 5) {
      this.style[side] = indexed(byte(at + 2));
      return at + 2;
    }
    if (codes[at + 1] === 2) {
      this.style[side] = `rgb(${byte(at + 2)}, ${byte(at + 3)}, ${byte(at + 4)})`;
      return at + 4;
    }
    return at + 1;
  }
}

/** The end of the sequence that begins here; 0 if it is incomplete. */
function sequenceEnd(text, at) {
  const next = text[at + 1];
  if (next === undefined) return 0;
  if (next === "[") {
    for (let i = at + 2; i < text.length; i += 1) {
      const code = text.charCodeAt(i);
      if (code >= 0x40 && code <= 0x7e) return i + 1;
      if (code < 0x20 || code > 0x7e) return i;
    }
    return 0;
  }
  if ("]PX^_".includes(next)) {
    for (let i = at + 2; i < text.length; i += 1) {
      if (text[i] === "\x07") return i + 1;
      if (text[i] === "\x1b" && text[i + 1] === "\\") return i + 2;
      if (text[i] === "\n") return i;
    }
    return 0;
  }
  if ("()*+#% ".includes(next)) return text[at + 2] === undefined ? 0 : at + 3;
  return at + 2;
}

function indexed(n) {
  if (n < 8) return PALETTE[n];
  if (n < 16) return `bright-${PALETTE[n - 8]}`;
  if (n > 231) {
    const grey = 8 + (n - 232) * 10;
    return `rgb(${grey}, ${grey}, ${grey})`;
  }
  const cube = n - 16;
  return `rgb(${CUBE[Math.floor(cube / 36)]}, ${CUBE[Math.floor(cube / 6) % 6]}, ${CUBE[cube % 6]})`;
}

function dressed(text, style) {
  const words = ["bold", "dim", "italic", "underline", "strike"].filter((word) => style[word]).map((word) => `a-${word}`);
  const { fg, bg, inverse } = style;
  if (inverse) words.push("a-inverse");
  if (!words.length && !fg && !bg) return document.createTextNode(text);
  const span = document.createElement("span");
  const colour = (value, side, property) => {
    if (!value) return;
    if (value.startsWith("rgb")) span.style.setProperty(property, value);
    else words.push(`a-${side}-${value}`);
  };
  colour(fg, "fg", inverse ? "--ink-of" : "color");
  if (!inverse) colour(bg, "bg", "background-color");
  span.className = words.join(" ");
  span.textContent = text;
  return span;
}
