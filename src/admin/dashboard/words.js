// Shared labels and small widgets: chips, ids, numbers.

import { h, icon, fill } from "./dom.js";

const NUMBER = new Intl.NumberFormat();

export const count = (value) => NUMBER.format(value ?? 0);
export const many = (value, one, several = `${one}s`) => `${count(value)} ${value === 1 ? one : several}`;
export const percent = (part, whole) => (whole ? `${(100 * part) / whole < 10 ? ((100 * part) / whole).toFixed(1) : Math.round((100 * part) / whole)} %` : "–");

export const STATES = ["waiting", "running", "done", "dead"];
const CAUSES = { failed: "failed", rejected: "rejected", in_doubt: "in doubt", damaged: "damaged", cancelled: "cancelled", over_budget: "over budget", unhealthy: "unhealthy" };

/** The label of a state, with how or why it ended. */
export function stateWord({ state, how, cause, waiting_for: waits }) {
  if (state === "done" && how && how !== "acted") return `done · ${how}`;
  if (state === "waiting" && waits) return `waiting · ${waits}`;
  if (state === "dead" && cause) return `dead · ${CAUSES[cause] ?? cause}`;
  return state;
}

/** A chip: a shape, a colour and a word, so that it is readable by each alone. */
export function chip(event) {
  return h("span", { class: `chip state-${STATES.includes(event.state) ? event.state : "other"}` }, h("i", { "aria-hidden": "true" }), stateWord(event));
}

/** Verdicts on a delivery, in the order they are stacked. */
export const VERDICTS = [
  { name: "accepted", tone: "accepted" },
  { name: "duplicate", tone: "duplicate" },
  { name: "stale", tone: "stale" },
  { name: "ignored", tone: "ignored" },
  { name: "refused", tone: "refused" },
  { name: "unavailable", tone: "unavailable" },
];

export const verdictChip = (word) => h("span", { class: `chip verdict-${/^[a-z_]+$/.test(word) ? word : "other"}` }, h("i", { "aria-hidden": "true" }), word);

/** Which identity matched, in words. */
export function sameWords(same) {
  if (!same) return "";
  if (same === "delivery") return "the same delivery id";
  if (same === "body") return "the same bytes";
  if (same === "time+body") return "the same bytes, signed at the same time";
  if (same === "change") return "the same change of its subject";
  if (same === "message") return "the same message of its stream";
  if (same === "other") return "an identity of an older config";
  if (same === "imported") return "an imported event";
  return `the same ${String(same).replaceAll("+", ", ")}`;
}

/** The matched identity in a word or two. */
export const sameShort = (same) => ({ delivery: "delivery id", body: "bytes", "time+body": "time and bytes", other: "an older identity" })[same] ?? String(same).replaceAll("+", ", ");

/** The short id: the last eight digits. */
export const shortId = (id) => String(id ?? "").slice(-8);

export const eventPath = (id) => `/events/${encodeURIComponent(id)}`;

/** An event's short id, as a link to its page. */
export const eventLink = (id) => h("a", { class: "id", href: eventPath(id), title: id }, shortId(id));

/** A copy button with feedback. */
export function copier(text, label) {
  const button = h("button", { class: "ghost tiny copy", type: "button", title: label, "aria-label": label }, icon("copy"));
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      byHand(text);
    }
    fill(button, icon("check"));
    button.classList.add("did");
    setTimeout(() => {
      fill(button, icon("copy"));
      button.classList.remove("did");
    }, 1200);
  });
  return button;
}

/** Fallback if the page has no access to the clipboard (plain http on another machine). */
function byHand(text) {
  const box = h("textarea", { class: "offscreen", value: text });
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  box.remove();
}

/** Fields of an event as `name value` pairs; long values are only cut visually. */
export function fields(of, { most = Infinity } = {}) {
  const all = Object.entries(of ?? {});
  const shown = all.slice(0, most).map(([name, value]) =>
    h("span", { class: "field" }, h("span", { class: "field-name" }, name), h("span", { class: "field-value", title: String(value) }, String(value))));
  return h("span", { class: "fields" }, shown, all.length > most ? h("span", { class: "faint" }, `+${all.length - most}`) : null);
}
