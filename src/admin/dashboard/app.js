// The frame of the page: session, navigation and the current view. Each view draws into the page and stops with its signal.

import { h, s, icon, fill, say } from "./dom.js";
import { api, session, onLoginNeeded } from "./api.js";
import { live, atMost } from "./live.js";
import { keys, help } from "./keys.js";
import { themeSwitch } from "./theme.js";
import { trouble } from "./dialog.js";
import { count } from "./words.js";
import { overview } from "./views/overview.js";
import { events } from "./views/events.js";
import { event } from "./views/event.js";
import { dead } from "./views/dead.js";
import { away } from "./views/away.js";
import { register, registers } from "./views/registers.js";
import { sources } from "./views/sources.js";
import { explain } from "./views/explain.js";
import { login } from "./views/login.js";

const VIEWS = [
  [/^\/$/, overview, "Overview"],
  [/^\/events$/, events, "Events"],
  [/^\/events\/([^/]+)$/, event, "Event"],
  [/^\/dead$/, dead, "Dead letters"],
  [/^\/turned-away$/, away, "Turned away"],
  [/^\/registers$/, registers, "Registers"],
  [/^\/registers\/([^/]+)$/, register, "Register"],
  [/^\/sources$/, sources, "Sources"],
  [/^\/explain$/, explain, "Explain"],
];

const NAV = [
  ["/", "overview", "Overview"],
  ["/events", "events", "Events"],
  ["/dead", "dead", "Dead letters"],
  ["/turned-away", "away", "Turned away"],
  ["/registers", "registers", "Registers"],
  ["/sources", "sources", "Sources"],
  ["/explain", "explain", "Explain"],
];

/** How often data is refreshed without an event from the stream. */
const LOOK = 15_000;

const frame = {};
let showing = null;
let title = "Hookonce";
let deadLetters = 0;

const mark = () => s("svg", { viewBox: "0 0 32 32", "aria-hidden": "true" }, s("rect", { width: 32, height: 32, rx: 8 }), s("path", { d: "M11 7v11.5a5.5 5.5 0 0 0 11 0V17" }), s("path", { d: "M18.5 19.5 22 16l3.5 3.5" }));

function draw() {
  frame.badge = h("span", { class: "badge", hidden: true });
  frame.links = NAV.map(([path, name, label]) => h("a", { href: path }, icon(name), label, path === "/dead" ? frame.badge : null));
  frame.live = h("div", { class: "live", id: "live", role: "status", data: { state: "connecting" } }, h("i"), h("span", {}, "Connecting"));
  const menu = h("button", { class: "menu ghost", type: "button", "aria-label": "Menu", "aria-expanded": "false", "aria-controls": "nav" }, icon("menu"));
  frame.side = h("header", { class: "side" },
    h("a", { class: "brand", href: "/" }, mark(), "Hookonce"),
    frame.live,
    menu,
    h("nav", { class: "nav", id: "nav", "aria-label": "Pages" }, frame.links),
    h("div", { class: "foot" },
      themeSwitch(),
      h("button", { class: "ghost", type: "button", onclick: help }, icon("key"), "Keys"),
      session.by === "cookie" ? h("button", { class: "ghost", type: "button", id: "logout", onclick: leave }, icon("out"), "Sign out") : null,
      h("div", { class: "live small" }, h("span", { class: "faint", title: `node ${session.node}` }, `v${session.version}${session.may === "read" ? " · read only" : ""}`))));
  menu.addEventListener("click", () => {
    const open = frame.side.classList.toggle("is-open");
    menu.setAttribute("aria-expanded", String(open));
    fill(menu, icon(open ? "close" : "menu"));
  });
  frame.shut = () => {
    frame.side.classList.remove("is-open");
    menu.setAttribute("aria-expanded", "false");
    fill(menu, icon("menu"));
  };
  frame.page = h("main", { class: "page", id: "page", tabindex: "-1" });
  document.body.replaceChildren(h("a", { class: "skip", href: "#page" }, "Skip to the page"), h("div", { class: "app" }, frame.side, frame.page));
}

async function leave() {
  live.close();
  await api.logout().catch(() => {});
  location.assign("/login");
}

/** Shows this URL; `how`: "push", "replace", or nothing if the browser already has it. */
export function go(to, how = "push") {
  const at = new URL(to, location.origin);
  if (how === "push" && at.href !== location.href) history.pushState({}, "", at);
  else if (how === "replace") history.replaceState({}, "", at);
  show();
  if (how === "push") {
    scrollTo(0, 0);
    // Screen readers announce the new page, and the tab order starts at its top.
    frame.page.focus({ preventScroll: true });
  }
}

function show() {
  showing?.abort();
  showing = new AbortController();
  const { signal } = showing;
  const path = location.pathname.replace(/(.)\/+$/, "$1");
  const found = VIEWS.find(([pattern]) => pattern.test(path));
  frame.shut();
  NAV.forEach(([of], i) => {
    const here = of === "/" ? path === "/" : path === of || path.startsWith(`${of}/`);
    if (here) frame.links[i].setAttribute("aria-current", "page");
    else frame.links[i].removeAttribute("aria-current");
  });
  const page = h("div", {});
  fill(frame.page, page);
  if (!found) {
    entitle("Not found");
    fill(page, h("div", { class: "card empty" }, h("h1", {}, "Page not found"), h("div", { class: "actions" }, h("a", { class: "button", href: "/" }, "To the overview"))));
    return;
  }
  const [pattern, view, name] = found;
  entitle(name);
  const parts = pattern.exec(path).slice(1).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const asked = new URLSearchParams(location.search);
  view({ page, signal, parts, asked, go, entitle, recount }).catch((error) => {
    if (!signal.aborted && error.status !== 401) trouble(page, error, show);
  });
}

function entitle(name) {
  title = name;
  retitle();
}

function retitle() {
  document.title = `${deadLetters ? `● ${count(deadLetters)} dead · ` : ""}${title} · Hookonce`;
  const favicon = document.getElementById("favicon");
  const wanted = deadLetters ? favicon.dataset.trouble : favicon.dataset.calm;
  if (favicon.getAttribute("href") !== wanted) favicon.setAttribute("href", wanted);
  if (!frame.badge) return;
  frame.badge.hidden = !deadLetters;
  say(frame.badge, count(deadLetters));
}

/** Updates the number of dead letters in the navigation and the title. */
const recount = atMost(5000, async () => {
  try {
    const { events: by } = await api.overview("1h");
    deadLetters = by.dead;
    retitle();
  } catch { /* the next refresh will succeed */ }
});

function status(state) {
  frame.live.dataset.state = state;
  say(frame.live.lastChild, { live: "Live", reconnecting: "Reconnecting", connecting: "Connecting" }[state]);
}

function listen() {
  live.on("status", status);
  live.on("state", ({ state, life }) => {
    if (state === "dead" || life > 1) recount();
  });
  live.on("again", recount);
  live.on("more", recount);
  // Events of other nodes may be missed, and the numbers of a time window age.
  setInterval(() => live.state === "live" && live.tell("more"), LOOK);
  live.open();
  recount();
}

async function start() {
  document.addEventListener("click", (click) => {
    const link = click.target.closest?.("a[href]");
    if (!link || click.defaultPrevented || click.button || click.ctrlKey || click.metaKey || click.shiftKey || click.altKey) return;
    if (link.origin !== location.origin || link.getAttribute("href").startsWith("#") || link.pathname.startsWith("/api/")) return;
    click.preventDefault();
    go(link.href);
  });
  onLoginNeeded(() => {
    if (location.pathname !== "/login") location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  });
  try {
    await api.session();
  } catch (error) {
    const page = h("main", { class: "login" });
    document.body.replaceChildren(page);
    trouble(page, error, () => location.reload());
    return;
  }
  const mustLogIn = session.needs_login && !session.may;
  if (mustLogIn || location.pathname === "/login") {
    if (!mustLogIn) location.replace("/");
    else login(mark);
    return;
  }
  draw();
  addEventListener("popstate", () => show());
  // A page in the back-forward cache must not hold a connection: browsers allow only six per host.
  addEventListener("pagehide", () => {
    showing?.abort();
    live.close();
  });
  addEventListener("pageshow", ({ persisted }) => {
    if (!persisted) return;
    live.open();
    show();
  });
  keys(go);
  listen();
  show();
}

start();
