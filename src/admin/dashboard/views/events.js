// All events, newest first. The filter is part of the URL, so that it can be shared.

import { h, fill } from "../dom.js";
import { api, query } from "../api.js";
import { live, atMost } from "../live.js";
import { many, STATES } from "../words.js";
import { now } from "../time.js";
import { found } from "./heard.js";
import { HEAD, row, table, renew } from "./rows.js";
import { trouble } from "../dialog.js";

const PAGE = 50;
const ROWS_MAX = 500;
const SPANS = { "1h": 3_600_000, "24h": 86_400_000, "7d": 604_800_000, "30d": 2_592_000_000 };
const ENDS = { dead: ["failed", "rejected", "in_doubt", "damaged", "cancelled", "over_budget", "unhealthy"], done: ["acted", "recorded", "superseded"] };
const PLAIN = ["source", "route", "state", "cause", "text"];

/** The filter that was changed last: it keeps the focus. */
let held = null;

/** The filter of the URL as API parameters, and its invalid parameters. */
function wanted(asked) {
  const all = new URLSearchParams();
  const wrong = [];
  for (const [name, value] of asked) {
    if (!value || name === "focus") continue;
    if (PLAIN.includes(name) || /^field\../.test(name)) all.set(name, value);
    else if (name === "last" && SPANS[value]) all.set("since", new Date(now() - SPANS[value]).toISOString());
    else if ((name === "since" || name === "until") && !Number.isNaN(Date.parse(value))) all.set(name, new Date(value).toISOString());
    else wrong.push([name, value]);
  }
  return { all, wrong };
}

/** The notice for an invalid filter, which must not list everything. */
function misread(wrong, asked) {
  const rest = new URLSearchParams(asked);
  for (const [name] of wrong) rest.delete(name);
  const said = wrong.map(([name, value], i) => [i ? ", " : "", h("code", {}, `${name}=${value}`)]);
  return h("div", { class: "notice bad", role: "alert" },
    h("p", {}, "Invalid filter: ", said, ". Nothing is listed."),
    h("a", { class: "button", href: `/events${query(rest)}` }, "Remove it"));
}

/** Whether the filter matches this event. */
function fits(event, all) {
  for (const [name, value] of all) {
    if (name === "since") {
      if (Date.parse(event.received_at) < Date.parse(value)) return false;
    } else if (name === "until") {
      if (Date.parse(event.received_at) >= Date.parse(value)) return false;
    } else if (name === "text") {
      const small = value.toLowerCase();
      const found = [event.delivery ?? "", ...Object.values(event.fields).map(String)].some((text) => text.toLowerCase().includes(small));
      if (!found && !event.event.endsWith(small)) return false;
    } else if (name === "cause") {
      if ((event.cause ?? event.how) !== value) return false;
    } else if (name.startsWith("field.")) {
      if (String(event.fields[name.slice(6)]) !== value) return false;
    } else if (String(event[name]) !== value) return false;
  }
  return true;
}

export async function events({ page, signal, asked, go }) {
  const filters = await form(asked, signal, go);
  const { all, wrong } = wanted(asked);
  const { node, body } = table(HEAD);
  const news = h("button", { class: "new-rows", type: "button", hidden: true });
  const foot = h("div", { class: "more" });
  const card = h("div", { class: "card" }, news, node, foot);
  const others = h("div", { class: "others" });
  fill(page, h("div", { class: "head" }, h("h1", {}, "Events")), filters, others, card);
  if (asked.has("focus")) filters.querySelector("[data-search]").focus();
  if (held) filters.elements[held]?.focus();
  held = null;
  if (wrong.length) {
    fill(card, misread(wrong, asked));
    return;
  }

  const list = new List({ body, news, more: foot, node, all, signal });
  live.on("state", (event) => list.hear(event), signal);
  const more = atMost(2000, () => list.look().catch(() => {}), signal);
  live.on("more", more, signal);
  live.on("again", () => list.load().catch(() => {}), signal);
  const text = asked.get("text");
  if (text) {
    const look = async () => {
      list.others = await found(others, text, signal);
      list.foot();
    };
    const again = atMost(1000, () => look().catch(() => {}), signal);
    live.on("delivery", ({ verdict }) => verdict !== "accepted" && again(), signal);
    live.on("more", again, signal);
    live.on("again", again, signal);
    await Promise.all([list.load(), look()]);
  } else await list.load();
}

class List {
  constructor(parts) {
    Object.assign(this, parts);
    this.fresh = new Map();
    this.others = 0;
    this.news.addEventListener("click", () => this.showFresh());
  }

  async load() {
    this.show(await api.events(this.query(), this.signal));
  }

  show(first) {
    this.fresh.clear();
    this.announce();
    const held = document.activeElement?.closest?.("tr")?.dataset.event;
    fill(this.body, first.events.map((event) => row(event)));
    if (held) this.find(held)?.querySelector("[data-row]").focus({ preventScroll: true });
    this.next = first.next;
    this.foot();
  }

  /** Loads the page again; does not move rows while they are being read, or if only states changed. */
  async look() {
    const first = await api.events(this.query(), this.signal);
    const shown = [...this.body.children];
    const whole = first.next ? shown.length >= first.events.length : shown.length === first.events.length;
    const same = whole && first.events.every(({ event }, i) => shown[i].dataset.event === event);
    if (same || this.reading()) first.events.forEach((event) => this.hear(event));
    else this.show(first);
  }

  query(before) {
    const query = new URLSearchParams(this.all);
    query.set("limit", PAGE);
    if (before) query.set("before", before);
    return query;
  }

  async older() {
    fill(this.more, h("span", { class: "faint" }, "Loading…"));
    try {
      const page = await api.events(this.query(this.next), this.signal);
      const rows = page.events.filter(({ event }) => !this.find(event)).map((event) => row(event));
      this.body.append(...rows);
      this.next = page.next;
      rows[0]?.querySelector("[data-row]").focus({ preventScroll: true });
      this.foot();
    } catch (error) {
      if (!this.signal.aborted) trouble(this.more, error, () => this.older());
    }
  }

  foot() {
    const rows = this.body.childElementCount;
    this.node.hidden = !rows;
    if (this.next) fill(this.more, h("button", { type: "button", onclick: () => this.older() }, rows ? "Older events" : "Search further back"));
    else fill(this.more, rows ? h("span", { class: "faint" }, many(rows, "event")) : this.nothing());
  }

  nothing() {
    if (![...this.all].length) return h("div", { class: "empty" }, h("h2", {}, "No events yet"), h("p", {}, "Events appear here after the first accepted delivery."), h("div", { class: "actions" }, h("a", { class: "button", href: "/" }, "What to do next")));
    if (this.others) return h("div", { class: "empty" }, h("h2", {}, "No matching event"), h("p", {}, "The delivery is listed above."));
    return h("div", { class: "empty" }, h("h2", {}, "Nothing matches"), h("p", {}, "No matching event or delivery. Try ", h("a", { href: "/explain" }, "Explain"), ", or look under ", h("a", { href: "/turned-away" }, "Turned away"), "."), h("div", { class: "actions" }, h("a", { class: "button", href: "/events" }, "Show all events")));
  }

  find(id) {
    return this.body.querySelector(`tr[data-event="${CSS.escape(id)}"]`);
  }

  hear(event) {
    const old = this.find(event.event);
    if (old) {
      renew(old, row(event));
      return;
    }
    const newest = this.body.firstElementChild?.dataset.event;
    // An old event that changes is not new; it belongs further down.
    if (!fits(event, this.all) || (newest && event.event < newest)) return;
    this.fresh.set(event.event, event);
    if (this.reading()) this.announce();
    else this.showFresh();
  }

  /** Whether the user is reading: rows must not move. */
  reading() {
    return scrollY > 60 || this.body.contains(document.activeElement);
  }

  announce() {
    this.news.hidden = !this.fresh.size;
    this.news.textContent = `Show ${many(this.fresh.size, "new event")}`;
  }

  showFresh() {
    const rows = [...this.fresh.values()].sort((a, b) => (a.event < b.event ? 1 : -1)).map((event) => row(event));
    for (const one of rows) one.classList.add("fresh");
    this.fresh.clear();
    this.body.prepend(...rows);
    while (this.body.childElementCount > ROWS_MAX) this.body.lastElementChild.remove();
    if (this.body.childElementCount === ROWS_MAX) this.next = this.body.lastElementChild.dataset.event;
    this.announce();
    this.foot();
  }
}

/** The filter form; each change is a new URL. */
async function form(asked, signal, go) {
  const { sources } = await api.sources(signal);
  const option = (value, label, chosen) => {
    const node = h("option", { value }, label ?? value);
    node.selected = value === chosen;
    return node;
  };
  const source = asked.get("source") ?? "";
  const routes = [...new Set(sources.filter(({ name }) => !source || name === source).flatMap((of) => of.routes.map(({ name }) => name)))];
  const state = asked.get("cause") ? `${asked.get("state")}:${asked.get("cause")}` : asked.get("state") ?? "";
  const field = [...asked].find(([name, value]) => name.startsWith("field.") && value);
  const between = asked.has("since") || asked.has("until");
  const span = between ? "between" : asked.get("last") ?? "";
  const own = (list, value) => (value && !list.includes(value) ? [...list, value] : list);

  const text = h("input", { type: "search", name: "text", maxlength: 200, value: asked.get("text") ?? "", placeholder: "Delivery id or any value", title: "A delivery id, the value of a field, or the end of an event's id", data: { search: "" } });
  const names = sources.flatMap((of) => of.fields.map(({ name }) => name));
  const suggestions = h("datalist", { id: "field-names" }, [...new Set(names)].map((name) => h("option", { value: `${name}=` })));
  const local = (value) => {
    const at = new Date(value ?? "");
    return Number.isNaN(at.getTime()) ? "" : new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  };
  const times = between
    ? [h("label", {}, "From", h("input", { type: "datetime-local", name: "since", value: local(asked.get("since")) })), h("label", {}, "Until", h("input", { type: "datetime-local", name: "until", value: local(asked.get("until")) }))]
    : null;
  const fieldBox = h("input", { name: "field", list: "field-names", placeholder: "tag=latest", value: field ? `${field[0].slice(6)}=${field[1]}` : "" });
  const fieldSays = h("span", { class: "wrong small", role: "alert", id: "field-says", hidden: true });
  const fieldIs = (wrong) => {
    fieldSays.hidden = !wrong;
    fill(fieldSays, wrong);
    if (wrong) fieldBox.setAttribute("aria-invalid", "true");
    else fieldBox.removeAttribute("aria-invalid");
  };
  fieldBox.setAttribute("aria-describedby", fieldSays.id);
  fieldBox.addEventListener("input", () => fieldIs(null));
  const node = h("form", { class: "filters", role: "search", "aria-label": "Filter events" },
    h("label", { class: "wide" }, "Search", text),
    h("label", {}, "Source", h("select", { name: "source" }, option("", "any", source), own(sources.map(({ name }) => name), source).map((name) => option(name, name, source)))),
    h("label", {}, "Route", h("select", { name: "route" }, option("", "any", asked.get("route") ?? ""), own(routes, asked.get("route")).map((name) => option(name, name, asked.get("route"))))),
    h("label", {}, "State", h("select", { name: "state" }, option("", "any", state), STATES.map((word) => [option(word, word, state), (ENDS[word] ?? []).map((end) => option(`${word}:${end}`, `${word} · ${end.replace("_", " ")}`, state))]))),
    h("label", {}, "Field", fieldBox, fieldSays, suggestions),
    h("label", {}, "Received", h("select", { name: "last" }, option("", "any time", span), option("1h", "last hour", span), option("24h", "last day", span), option("7d", "last 7 days", span), option("30d", "last 30 days", span), option("between", "between …", span))),
    times,
    h("div", { class: "actions" }, h("button", { type: "submit" }, "Find"), asked.size ? h("a", { class: "button", href: "/events" }, "Clear") : null));
  const apply = (submit, changed) => {
    submit?.preventDefault();
    const given = new FormData(node);
    const next = new URLSearchParams();
    const put = (name, value) => value && next.set(name, value);
    put("text", given.get("text").trim());
    put("source", given.get("source"));
    const kept = given.get("source") === source ? given.get("route") : "";
    put("route", kept);
    const [word, end] = given.get("state").split(":");
    put("state", word);
    put("cause", end);
    const [, name, value] = /^\s*([^=\s]+)\s*=\s*(.+?)\s*$/.exec(given.get("field")) ?? [];
    if (name) put(`field.${name}`, value);
    else if (given.get("field").trim()) {
      fieldIs("Write name=value, such as tag=latest");
      fieldBox.focus();
      return;
    }
    const last = given.get("last");
    if (last === "between") {
      const at = (which, otherwise) => (given.get(which) ? new Date(given.get(which)).toISOString() : otherwise);
      put("since", at("since", new Date(now() - SPANS["24h"]).toISOString()));
      put("until", at("until"));
    } else put("last", last);
    held = changed ?? (node.contains(document.activeElement) ? document.activeElement.name : null);
    const query = next.toString();
    go(`/events${query ? `?${query}` : ""}`);
  };
  node.addEventListener("submit", (submit) => apply(submit));
  node.addEventListener("change", (change) => {
    if (change.target.tagName === "SELECT") apply(null, change.target.name);
  });
  return node;
}
