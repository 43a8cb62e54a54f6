// Events as table rows, for the pages of events and of dead letters.

import { h } from "../dom.js";
import { chip, eventLink, fields } from "../words.js";
import { when } from "../time.js";

export const HEAD = ["Event", "State", "Source", "Fields", "Attempts", "Received"];

/** One event; `last` replaces the column with the time of receipt. */
export function row(event, last = null) {
  const link = eventLink(event.event);
  link.dataset.row = "";
  const replays = event.life > 1 ? ` · life ${event.life}` : "";
  return h("tr", { class: "go", data: { event: event.event } },
    h("td", { class: "tight" }, link),
    h("td", { class: "tight" }, chip(event)),
    h("td", { class: "tight" }, event.source, h("span", { class: "faint" }, " / ", event.route)),
    h("td", { class: "wide" }, fields(event.fields, { most: 5 })),
    h("td", { class: "tight", data: { label: "attempts" } }, String(event.attempt), h("span", { class: "faint" }, replays)),
    last ?? h("td", { class: "tight last" }, when(event.received_at)));
}

export function table(head) {
  const body = h("tbody");
  const node = h("table", { class: "cards" }, h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))), body);
  // The whole row is clickable; keyboard and screen readers use its link.
  body.addEventListener("click", (click) => {
    if (click.target.closest("a, button") || getSelection()?.toString()) return;
    click.target.closest("tr.go")?.querySelector("[data-row]")?.click();
  });
  return { node, body };
}

/** Replaces a row if it differs, and keeps the focus. */
export function renew(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  const held = old.contains(document.activeElement);
  old.replaceWith(fresh);
  if (held) fresh.querySelector("[data-row]")?.focus({ preventScroll: true });
}
