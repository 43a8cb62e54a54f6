// Registers: what each subject was last changed to, what was last deployed of it, and what was last good; and how to correct
// them.

import { h, icon, fill } from "../dom.js";
import { api, mayAct } from "../api.js";
import { live, atMost } from "../live.js";
import { confirm, toast, trouble } from "../dialog.js";
import { chip, copier, eventLink, fields, many, shortId } from "../words.js";
import { when } from "../time.js";
import { table } from "./rows.js";

/** Registers per page. */
const PAGE = 100;
/** Events of a subject that are listed. */
const EVENTS = 25;

const keyOf = ({ register }) => register.slice(0, 8);
const path = ({ register }) => `/registers/${encodeURIComponent(register)}`;
const none = () => h("span", { class: "faint" }, "none");

/** The subject in words, for titles and questions. */
const inWords = (register) => Object.values(register.subject).map(String).join(" ") || keyOf(register);

/** An event of a register: its id and its state, or when it became deployed or good. */
const named = (one, extra) => (one ? h("span", { class: "pair" }, eventLink(one.event), extra(one)) : none());
const stateOf = (one) => (one.state ? chip(one) : h("span", { class: "faint" }, "not kept"));

/** The text of a filter, `package=shop tag=latest`, as the API's parameters. */
function asked(text) {
  const pairs = text.trim().split(/\s+/).filter(Boolean).map((word) => word.split(/=(.*)/s));
  return Object.fromEntries(pairs.map(([name, value = ""]) => [`field.${name}`, value]));
}

export async function registers({ page, signal, asked: query, go }) {
  const filter = Object.fromEntries([...query].filter(([name]) => name === "source" || name.startsWith("field.")));
  const shown = Object.entries(filter).filter(([name]) => name !== "source").map(([name, value]) => `${name.slice(6)}=${value}`).join(" ");
  const text = h("input", { type: "search", name: "fields", value: shown, maxlength: 200, "aria-label": "Find a subject by its fields", placeholder: "package=shop tag=latest", data: { search: "" } });
  const find = h("form", { class: "search", role: "search" }, icon("find"), text);
  find.addEventListener("submit", (submit) => {
    submit.preventDefault();
    go(`/registers?${new URLSearchParams(asked(text.value))}`);
  });
  const { node, body } = table(["Register", "Subject", "Source", "Current", "Deployed", "Good"]);
  const more = h("div", { class: "more" });
  fill(page,
    h("div", { class: "head" }, h("h1", {}, "Registers"), find,
      h("p", {}, "What each subject was last changed to, what was last deployed of it, and what was last good. Sources with a ", h("code", {}, "change"), " have subjects.")),
    h("div", { class: "card" }, node, more));

  const one = (register) => h("tr", { class: "go", data: { register: register.register } },
    h("td", { class: "tight" }, h("a", { class: "id", href: path(register), data: { row: "" } }, keyOf(register))),
    h("td", { class: "wide" }, fields(register.subject)),
    h("td", { class: "tight" }, register.source ?? none(), register.route ? h("span", { class: "faint" }, " / ", register.route) : null),
    h("td", { class: "tight", data: { label: "current" } }, named(register.current, stateOf)),
    ["deployed", "good"].map((which) => h("td", { class: "tight", data: { label: which } }, named(register[which], ({ at }) => when(at)))));
  let next = null;
  let drawn = null;
  const read = (after) => api.registers({ ...filter, limit: PAGE, after }, signal);
  const add = (found) => {
    body.append(...found.registers.map(one));
    ({ next } = found);
    node.hidden = !body.childElementCount;
    if (next) fill(more, h("button", { type: "button", onclick: () => rest().catch((error) => trouble(more, error, rest)) }, "More registers"));
    else if (body.childElementCount) fill(more, h("span", { class: "faint" }, many(body.childElementCount, "register")));
    else fill(more, h("div", { class: "empty" }, h("h2", {}, shown ? "No matches" : "No registers"), h("p", {}, "A register begins with the first event of a source that has a change: a subject and its value.")));
  };
  const rest = async () => add(await read(next));
  // Unchanged content is not redrawn, to keep what is selected.
  const load = async () => {
    const first = await read();
    const text = JSON.stringify(first);
    if (text === drawn) return;
    drawn = text;
    fill(body);
    add(first);
  };
  const refresh = atMost(2000, () => load().catch(() => {}), signal);
  for (const kind of ["state", "again", "more"]) live.on(kind, refresh, signal);
  await load();
}

export async function register({ page, signal, parts: [name], entitle, go }) {
  const head = h("div", {});
  const facts = h("dl", { class: "facts" });
  const { node: three, body: threeBody } = table(["", "Event", "State", "Value", "When"]);
  const { node: others, body: othersBody } = table(["Event", "State", "Value", "Received", ""]);
  fill(page, head, h("div", { class: "stack" },
    h("section", { class: "card", id: "named" }, h("div", { class: "card-head" }, h("h2", {}, "Its events")), three),
    h("section", { class: "card", id: "candidates" }, h("div", { class: "card-head" }, h("h2", {}, "Events of this subject")), others),
    h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Facts")), h("div", { class: "card-body" }, facts))));

  const valueOf = (one) => [fields(one.value), one.digest ? h("code", { title: one.digest }, one.digest.slice(0, 19)) : null];
  const row = (which, register) => {
    const one = register[which];
    const [first, ...rest] = one ? [h("td", { class: "tight" }, eventLink(one.event)), h("td", { class: "tight" }, stateOf(one), one.rolled_back_by ? h("div", { class: "small" }, "rolled back by ", eventLink(one.rolled_back_by)) : null), h("td", { class: "wide" }, valueOf(one)), h("td", { class: "tight last" }, when(one.at))] : [h("td", {}, none())];
    return h("tr", { data: { which } }, h("td", { class: "tight" }, h("b", {}, which)), first, rest);
  };
  /** An event that the register could name: buttons for what it is not yet. */
  const candidate = (event, register) => {
    const value = Object.fromEntries(Object.entries(event.fields).filter(([name]) => name in register.current.value));
    const over = event.state === "done" || event.state === "dead";
    const buttons = over && mayAct()
      ? ["current", "deployed", "good"].filter((which) => register[which]?.event !== event.event).map((which) =>
        h("button", { type: "button", class: "tiny", data: { set: which }, onclick: () => set(register, which, event) }, which))
      : null;
    return h("tr", { data: { event: event.event } },
      h("td", { class: "tight" }, eventLink(event.event)),
      h("td", { class: "tight" }, chip(event)),
      h("td", { class: "wide" }, fields(value)),
      h("td", { class: "tight" }, when(event.received_at)),
      h("td", { class: "tight last" }, buttons?.length ? h("span", { class: "pair" }, h("span", { class: "faint small" }, "make it"), buttons) : null));
  };
  const draw = (register, events) => {
    entitle(`Register ${inWords(register)}`);
    const fact = (label, ...value) => [h("dt", {}, label), h("dd", {}, value)];
    fill(head, h("div", { class: "head" },
      h("div", { class: "event-head" }, h("a", { class: "crumb", href: "/registers", data: { up: "" } }, "Registers"), h("h1", {}, inWords(register))),
      mayAct() ? h("div", { class: "actions" },
        register.deployed || register.good ? h("button", { type: "button", id: "clear-deployed", onclick: () => clear(register, true) }, icon("forget"), "Clear what was deployed") : null,
        h("button", { type: "button", id: "clear", class: "quiet-danger", onclick: () => clear(register, false) }, icon("forget"), "Clear")) : null));
    fill(threeBody, ["current", "deployed", "good"].map((which) => row(which, register)));
    fill(facts,
      Object.entries(register.subject).map(([of, value]) => fact(of, String(value))),
      fact("source", register.source ?? none()),
      fact("route", register.route ?? none()),
      register.order === null ? null : fact("order", String(register.order), register.ordered_by ? h("span", { class: "faint" }, ` · ${register.ordered_by}`) : null, register.strict ? h("span", { class: "faint" }, " · an equal order is stale, too") : null),
      fact("digest of its value", h("code", {}, register.value_digest)),
      fact("register", h("code", {}, register.register), copier(register.register, "Copy the register's key")));
    const own = events.filter((event) => !event.rollback && !event.notification);
    fill(othersBody, own.map((event) => candidate(event, register)));
  };
  let drawn = null;
  const load = async () => {
    const register = await api.register(name, signal);
    if (name !== register.register) {
      name = register.register;
      history.replaceState({}, "", path(register));
    }
    const of = Object.fromEntries(Object.entries(register.subject).map(([field, value]) => [`field.${field}`, String(value)]));
    const { events } = register.source ? await api.events({ source: register.source, ...of, limit: EVENTS }, signal) : { events: [] };
    const text = JSON.stringify([register, events]);
    if (text !== drawn) draw(register, events);
    drawn = text;
  };
  const tried = async (what, said) => {
    try {
      await what();
      toast(said);
      return true;
    } catch (error) {
      toast(error.message, { bad: true });
      return false;
    }
  };
  const set = async (register, which, event) => {
    const text = `The ${which} event of ${inWords(register)} becomes ${shortId(event.event)}. Nothing runs.`;
    if (!(await confirm({ title: `Make ${shortId(event.event)} the ${which} event?`, text, yes: "Change it" }))) return;
    await tried(() => api.setRegister(register.register, { [which]: event.event }), `${shortId(event.event)} is the ${which} event`);
    await load().catch(() => {});
  };
  const clear = async (register, deployed) => {
    const text = deployed
      ? "Nothing counts as deployed or good any more. The current event stays. Nothing runs."
      : "It is as if the subject had never been changed: its next delivery acts, whatever its value and order. Nothing runs now.";
    const title = deployed ? `Clear what was deployed of ${inWords(register)}?` : `Clear the register of ${inWords(register)}?`;
    if (!(await confirm({ title, text, yes: "Clear it", danger: true }))) return;
    const done = await tried(() => api.clearRegister(register.register, { deployed: deployed ? "1" : "" }), "Cleared");
    if (done && !deployed) go("/registers");
    else await load().catch(() => {});
  };
  const gone = (error) => {
    if (error.status === 404) fill(head, h("div", { class: "notice warn" }, "This register was cleared."));
  };
  const refresh = atMost(1000, () => load().catch(gone), signal);
  for (const kind of ["state", "again", "more"]) live.on(kind, refresh, signal);
  await load();
}
