// Sources and their routes, as resolved from the config.

import { h, fill } from "../dom.js";
import { api, mayAct } from "../api.js";
import { live, atMost } from "../live.js";
import { sheet, toast } from "../dialog.js";
import { when } from "../time.js";
import { copier, many } from "../words.js";

/** A sentence, with names in backticks as code. */
const named = (text) => text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));

/** A URL with a copy button. */
export function address(source) {
  const url = source.url ?? source.path;
  return h("div", { class: "url" }, h("code", {}, url), copier(url, `Copy the URL of ${source.name}`));
}

/** How many attempts may begin in which time. */
export const budgetWords = ({ runs, within, per }) => `${many(runs, "attempt")} in ${within}${per === "group" ? " per group" : ""}`;

function action({ run, forward, publish, sql }) {
  if (run) return run.map((block) => h("div", {}, block.steps.map((step) => h("div", {}, h("code", {}, typeof step === "string" ? step : step.join(" ")))), h("span", { class: "faint small" }, `in ${block.dir}, at most ${block.timeout}`)));
  if (forward) return [forward].flat().map(({ url, timeout }) => h("div", {}, "forward to ", h("code", {}, url), h("span", { class: "faint small" }, timeout ? `, at most ${timeout}` : "")));
  if (publish) return h("div", {}, "publish ", h("code", {}, JSON.stringify(publish)));
  if (sql) return h("div", {}, "sql ", h("code", {}, typeof sql === "string" ? sql : JSON.stringify(sql)));
  return "nothing: events are only recorded";
}

/** Whether what was deployed is healthy, and what happens if it is not. */
function health({ health_check: { url, run, within, every }, on_unhealthy: otherwise }) {
  const then = otherwise === "rollback" ? "otherwise it is dead, and the last good one is deployed again" : "otherwise it is dead";
  return [h("code", {}, url ?? run), ` ${url ? "responds with 2xx" : "exits with 0"} within ${within}, checked every ${every}; ${then}`];
}

/** Who is told about which ends. */
const target = ({ name, as, on, to, attempts }) =>
  h("div", {}, as, name === as ? "" : ` (${name})`, ` on ${on.join(", ")}: `, h("code", {}, to), h("span", { class: "faint small" }, `, at most ${many(attempts, "attempt")}`));

/** What is asked for in which registry. */
const asksFor = ({ registry, image, tag, credentials }) => [h("code", {}, `${image}:${tag}`), " in the registry ", h("code", {}, registry), `, ${credentials}`];

function route(of) {
  const { attempts, attempts_once_accepted: accepted, first, longest } = of.retry;
  const times = (n) => n === 1 ? "once" : `${n} times`;
  const tries = accepted === attempts ? times(attempts) : `${times(attempts)} while the sender waits, ${times(accepted)} after it got 202`;
  const apart = Math.max(attempts, accepted) === 1 ? "" : `, first after ${first}, at most ${longest} apart`;
  const fact = (name, ...value) => [h("dt", {}, name), h("dd", {}, value)];
  return h("div", { class: "route" }, h("h3", {}, "Route ", of.name), h("dl", { class: "facts even" },
    fact("when", of.when ? h("code", {}, of.when) : "always"),
    of.lookup ? fact("asks for", asksFor(of.lookup), `, at most ${of.lookup.timeout}`) : null,
    fact("does", action(of.action ?? {})),
    of.health_check ? fact("healthy if", health(of)) : null,
    of.group ? fact("one at a time per", [of.group].flat().join(", ")) : null,
    of.when_busy === "replace" ? fact("when busy", `only the newest of those that wait is kept${of.debounce ? `; it starts when none came for ${of.debounce}, after ${of.debounce_max} at most` : ""}`) : null,
    of.budget ? fact("budget", `${budgetWords(of.budget)}; what is beyond it ${of.budget.exceeded === "drop" ? "is dropped" : "waits"}`) : null,
    fact("attempts", tries + apart),
    fact("in doubt", { hold: "held for review", never: "never: it is one commit" }[of.in_doubt] ?? `retried, at most ${of.doubts} lost attempts`),
    of.notify?.length ? fact("notifies", of.notify.map(target)) : null));
}

/** What a polled source asks for, and what the registry said. */
function polled(fact, poll, known) {
  const { every, min_age, timeout } = poll;
  const { digest, since, acted_on: acted, acts_at: acts, asked_at: asked, next_at: next, failures } = known ?? {};
  const pending = digest && digest !== acted ? [", deployed ", when(acts)] : [];
  return [
    fact("polls", asksFor(poll), `, every ${every}, at most ${timeout}`),
    min_age ? fact("waits", `until a digest was first seen ${min_age} ago`) : [],
    fact("is", digest ? [h("code", {}, digest), ", first seen there ", when(since), pending] : "not known"),
    fact("asked", asked ? [when(asked), ", next ", when(next)] : "not yet", failures ? h("span", { class: "is-bad" }, `; ${many(failures, "question")} in a row without an answer`) : null),
  ];
}

/** Shows what a handshake brought, once: the node forgets it. */
async function see(source, redraw) {
  try {
    const { came, value, replaced } = await api.seeHandshake(source);
    if (came) {
      sheet("The sender brought this",
        h("p", {}, h("code", { id: "brought" }, value), copier(value, "Copy it")),
        h("p", {}, "It is shown only now. Give it back to the sender, and write it to the file of the source's secret."),
        replaced ? h("p", { class: "notice warn" }, "Others came before it. Anyone can send one: if the sender rejects it, ask there for a new one.") : null);
    } else toast("Somebody has seen it, or it was too old.", { bad: true });
  } catch (error) {
    toast(error.message, { bad: true });
  }
  redraw();
}

/** What a sender brings by its handshake, and whether it has. */
function brought({ source, brings, arrived_at: arrived, lacks_secret: lacks }, redraw) {
  const command = h("code", {}, `hookonce handshake ${source}`);
  const shown = arrived
    ? ["A value arrived ", when(arrived), mayAct() ? [". ", h("button", { type: "button", class: "tiny", onclick: () => see(source, redraw) }, "Show it once")] : "; who may do everything can see it once"]
    : ["Nothing waits to be seen. ", command, " waits for it."];
  return [
    lacks ? h("p", { class: "notice warn" }, `Its deliveries are not accepted: ${lacks}`) : null,
    brings === "shown" ? h("p", {}, shown) : h("p", {}, lacks ? [command, " takes the secret when the webhook is created."] : "The secret is there."),
  ];
}

export async function sources({ page, signal }) {
  const { sources: all, store, warnings } = await api.sources(signal);
  const known = all.some(({ poll }) => poll) ? (await api.polled(signal)).polled : [];
  const places = new Map();
  const one = (source) => {
    const fact = (name, ...value) => [h("dt", {}, name), h("dd", {}, value)];
    const place = h("div");
    places.set(source.name, place);
    return h("section", { class: "card" },
      h("div", { class: "card-head" }, h("h2", {}, source.name), source.preset ? h("span", { class: "chip" }, source.preset) : null, h("a", { class: "small", href: `/events?source=${encodeURIComponent(source.name)}` }, "Events")),
      h("div", { class: "card-body stack" },
        address(source),
        place,
        h("dl", { class: "facts even" },
          source.poll ? polled(fact, source.poll, known.find((one) => one.source === source.name)) : fact("signed by", source.signed_by),
          source.handshakes?.length ? fact("handshakes", h("ul", { class: "bullets" }, source.handshakes.map((words) => h("li", {}, words)))) : null,
          source.require ? fact("requires", h("code", {}, source.require)) : null,
          fact("acts when", source.when ? h("code", {}, source.when) : "always"),
          fact("recognised by", h("ul", { class: "bullets" }, (source.identities_in_words ?? []).map((words) => h("li", {}, words)))),
          fact("keeps", `keys ${source.once.keep === "forever" ? "forever" : source.once.keep}, bodies ${source.once.keep_body}`),
          source.catch_up ? fact("catches up", source.catch_up.hook, " at ", h("code", {}, source.catch_up.api), `, every ${source.catch_up.every}, at most ${source.catch_up.back} back, ${many(source.catch_up.requests_per_hour, "request")} an hour`) : null,
          source.poll ? null : fact("responds", source.respond === "done" ? `when it is done, within ${source.respond_within}` : "as soon as it is stored"),
          fact("fields", source.fields.length ? h("span", { class: "fields" }, source.fields.map(({ name, at }) => h("span", { class: "field" }, h("span", {}, name), h("code", { class: "field-name" }, at)))) : "none")),
        h("div", {}, source.routes.map(route))));
  };
  fill(page,
    h("div", { class: "head" }, h("h1", {}, "Sources"), h("p", {}, "Senders and routes of this node's config, as loaded at its start. Events are kept in ", h("code", {}, store), ".")),
    h("div", { class: "stack" }, (warnings ?? []).map((text) => h("p", { class: "notice warn" }, h("span", {}, named(text)))), all.map(one)),
    all.length ? null : h("div", { class: "card empty" }, h("h2", {}, "No sources"), h("p", {}, "The config has none: ", h("code", {}, "hookonce init"), " writes one.")));
  const redraw = async () => {
    const { handshakes } = await api.handshakes(signal);
    for (const handshake of handshakes) fill(places.get(handshake.source) ?? h("div"), brought(handshake, () => redraw().catch(() => {})));
  };
  live.on("delivery", atMost(1000, () => redraw().catch(() => {}), signal), signal);
  await redraw();
}
