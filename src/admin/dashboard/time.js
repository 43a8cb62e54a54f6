// Times in the user's time zone, as <time> elements: relative, absolute on hover, updated automatically.

import { h } from "./dom.js";

const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const HOUR = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** How far the server's clock is ahead of this one, in ms; set from its responses. */
let ahead = 0;
export function clockIs(serverTime) {
  const at = Date.parse(serverTime);
  if (!Number.isNaN(at)) ahead = at - Date.now();
}
/** Now, by the server's clock. */
export const now = () => Date.now() + ahead;

export const full = (at) => `${FULL.format(new Date(at))} ${ZONE}`;
export const clock = (at) => CLOCK.format(new Date(at));
export const hour = (at) => HOUR.format(new Date(at));
export const day = (at) => DAY.format(new Date(at));

/** The time of day, with the day if it is not today. */
const moment = (at) => (day(at) === day(now()) && now() - at < 86_400_000 ? clock(at) : `${day(at)}, ${clock(at)}`);

/** A duration in one or two units: `829 ms`, `4.2 s`, `3 m 20 s`. */
export function length(ms) {
  if (!(ms >= 0)) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m${seconds % 60 ? ` ${seconds % 60} s` : ""}`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} m`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** `12 s ago`, `in 4 m`, `just now`. */
export function relative(at) {
  const away = now() - at;
  const ms = Math.abs(away);
  if (ms < 1500) return "just now";
  const [value, unit] =
    ms < 60_000 ? [ms / 1000, "s"] : ms < 3_600_000 ? [ms / 60_000, "m"] : ms < 86_400_000 ? [ms / 3_600_000, "h"] : [ms / 86_400_000, "d"];
  const text = `${Math.max(1, Math.floor(value))} ${unit}`;
  return away > 0 ? `${text} ago` : `in ${text}`;
}

/** A `<time>` element that is kept up to date. */
export function when(text, { form = "relative" } = {}) {
  const at = Date.parse(text ?? "");
  if (Number.isNaN(at)) return h("span", { class: "faint" }, "–");
  const shown = form === "clock" ? moment(at) : relative(at);
  const title = form === "clock" ? `${full(at)} (${relative(at)})` : full(at);
  return h("time", { datetime: new Date(at).toISOString(), title, data: { form } }, shown);
}

setInterval(() => {
  if (document.hidden) return;
  for (const node of document.querySelectorAll('time[data-form="relative"]')) {
    const text = relative(Date.parse(node.dateTime));
    if (node.textContent !== text) node.textContent = text;
  }
}, 1000);
