// Keyboard shortcuts. Everything can also be clicked.

import { h } from "./dom.js";
import { sheet } from "./dialog.js";

const GO = { o: "/", e: "/events", d: "/dead", t: "/turned-away", r: "/registers", s: "/sources", x: "/explain" };

const typing = (node) => node instanceof HTMLElement && (node.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(node.tagName));

export function keys(go) {
  let after = "";
  let timer;
  document.addEventListener("keydown", (press) => {
    if (press.ctrlKey || press.metaKey || press.altKey || document.querySelector("dialog[open]")) return;
    if (typing(press.target)) {
      if (press.key === "Escape") press.target.blur();
      return;
    }
    if (after === "g") {
      after = "";
      if (GO[press.key]) {
        press.preventDefault();
        go(GO[press.key]);
        return;
      }
    }
    if (press.key === "g") {
      after = "g";
      clearTimeout(timer);
      timer = setTimeout(() => { after = ""; }, 1200);
    } else if (press.key === "j" || press.key === "k") {
      step(press.key === "j" ? 1 : -1);
    } else if (press.key === "/") {
      const search = document.querySelector("[data-search]");
      if (search) {
        press.preventDefault();
        search.focus();
        search.select();
      } else go("/events?focus=1");
    } else if (press.key === "?") {
      help();
    } else if (press.key === "u" || press.key === "Escape") {
      document.querySelector("[data-up]")?.click();
    } else if (["r", "c"].includes(press.key)) {
      document.querySelector(`[data-key="${press.key}"]`)?.click();
    }
  });
}

/** Moves to the next or previous row. */
function step(by) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row === document.activeElement || row.closest("tr")?.contains(document.activeElement));
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
  rows[next].focus();
  rows[next].scrollIntoView({ block: "nearest" });
}

export function help() {
  const key = (...names) => h("span", {}, names.map((name, i) => [i ? " " : "", h("kbd", {}, name)]));
  sheet("Keys", h("div", { class: "keys" },
    key("j", "k"), "next and previous row",
    key("Enter"), "open it",
    key("u"), "back to the list",
    key("/"), "search events",
    key("r"), "replay the event on this page",
    key("c"), "cancel it",
    key("g", "o"), "overview",
    key("g", "e"), "events",
    key("g", "d"), "dead letters",
    key("g", "t"), "turned away",
    key("g", "r"), "registers",
    key("g", "s"), "sources",
    key("g", "x"), "explain",
    key("?"), "this help"));
}
