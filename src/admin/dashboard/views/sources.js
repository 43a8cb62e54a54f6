// Sources and their routes, as the config was understood.

import { h, fill } from "../dom.js";
import { api } from "../api.js";
import { copier } from "../words.js";

/** A sentence with names between backticks. */
const named = (text) => text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));

/** An address one can copy. */
export function address(source) {
  const url = source.url ?? source.path;
  return h("div", { class: "url" }, h("code", {}, url), copier(url, `Copy the URL of ${source.name}`));
}

function action({ run, forward, publish, sql }) {
  if (run) return run.map((block) => h("div", {}, block.steps.map((step) => h("div", {}, h("code", {}, typeof step === "string" ? step : step.join(" ")))), h("span", { class: "faint small" }, `in ${block.dir}, at most ${block.timeout}`)));
  if (forward) return [forward].flat().map(({ url, timeout }) => h("div", {}, "forward to ", h("code", {}, url), h("span", { class: "faint small" }, timeout ? `, at most ${timeout}` : "")));
  if (publish) return h("div", {}, "publish ", h("code", {}, JSON.stringify(publish)));
  if (sql) return h("div", {}, "sql ", h("code", {}, typeof sql === "string" ? sql : JSON.stringify(sql)));
  return "nothing: events are only recorded";
}

function route(of) {
  const { attempts, attempts_once_accepted: accepted, first, longest } = of.retry;
  const times = (n) => n === 1 ? "once" : `${n} times`;
  const tries = accepted === attempts ? times(attempts) : `${times(attempts)} while the sender waits, ${times(accepted)} once it was told 202`;
  const apart = Math.max(attempts, accepted) === 1 ? "" : `, first after ${first}, at most ${longest} apart`;
  const fact = (name, ...value) => [h("dt", {}, name), h("dd", {}, value)];
  return h("div", { class: "route" }, h("h3", {}, "Route ", of.name), h("dl", { class: "facts even" },
    fact("takes", of.when ? h("code", {}, of.when) : "everything"),
    fact("does", action(of.action ?? {})),
    of.group ? fact("one at a time per", [of.group].flat().join(", ")) : null,
    fact("tries", tries + apart),
    fact("in doubt", { hold: "waits for a person", never: "never: it is one commit" }[of.in_doubt] ?? `tries again, at most ${of.doubts} attempts lost`)));
}

export async function sources({ page, signal }) {
  const { sources: all, store, warnings } = await api.sources(signal);
  const one = (source) => {
    const fact = (name, ...value) => [h("dt", {}, name), h("dd", {}, value)];
    return h("section", { class: "card" },
      h("div", { class: "card-head" }, h("h2", {}, source.name), source.preset ? h("span", { class: "chip" }, source.preset) : null, h("a", { class: "small", href: `/events?source=${encodeURIComponent(source.name)}` }, "Events")),
      h("div", { class: "card-body stack" },
        address(source),
        h("dl", { class: "facts even" },
          fact("believes", source.signed_by),
          source.require ? fact("requires", h("code", {}, source.require)) : null,
          fact("acts when", source.when ? h("code", {}, source.when) : "always"),
          fact("recognised by", h("ul", { class: "bullets" }, (source.identities_in_words ?? []).map((words) => h("li", {}, words)))),
          fact("remembers", `keys ${source.once.keep === "forever" ? "for ever" : source.once.keep}, bodies ${source.once.keep_body}`),
          fact("answers", source.respond === "done" ? `when it is done, within ${source.respond_within}` : "as soon as it is written"),
          fact("fields", source.fields.length ? h("span", { class: "fields" }, source.fields.map(({ name, at }) => h("span", { class: "field" }, h("span", {}, name), h("code", { class: "field-name" }, at)))) : "none")),
        h("div", {}, source.routes.map(route))));
  };
  fill(page,
    h("div", { class: "head" }, h("h1", {}, "Sources"), h("p", {}, "Who is believed and what is done, as the config was understood when this node started. Events are kept in ", h("code", {}, store), ".")),
    h("div", { class: "stack" }, (warnings ?? []).map((text) => h("p", { class: "notice warn" }, h("span", {}, named(text)))), all.map(one)),
    all.length ? null : h("div", { class: "card empty" }, h("h2", {}, "No sources"), h("p", {}, "The config names none: ", h("code", {}, "hookonce init"), " writes one.")));
}
