// Explain: paste a delivery and see each step of its evaluation. Nothing is accepted and nothing is written.

import { h, icon, fill } from "../dom.js";
import { api } from "../api.js";
import { eventLink, sameWords } from "../words.js";
import { trouble } from "../dialog.js";
import { full } from "../time.js";

/** `Name: value` per line, as browsers, curl and GitHub show them. */
function headers(text) {
  const all = {};
  for (const line of text.split(/\r?\n/)) {
    const found = /^\s*([^:\s]+)\s*:\s*(.*?)\s*$/.exec(line);
    if (found) all[found[1].toLowerCase()] = found[2];
  }
  return all;
}

export async function explain({ page, signal, asked }) {
  const { sources } = await api.sources(signal);
  const event = asked.get("event");
  const source = h("select", { name: "source" }, h("option", { value: "" }, "the one that fits"), sources.map(({ name }) => h("option", { value: name }, name)));
  const head = h("textarea", { name: "headers", rows: 6, spellcheck: "false", placeholder: "X-GitHub-Event: registry_package\nX-GitHub-Delivery: 72d3162e-…\nX-Hub-Signature-256: sha256=…" });
  const body = h("textarea", { name: "body", rows: 12, spellcheck: "false", placeholder: '{ "action": "published", … }' });
  const button = h("button", { class: "primary", type: "submit" }, "Explain");
  const result = h("div", { class: "stack", "aria-live": "polite" });
  const form = h("form", { class: "card card-body stack" },
    h("label", {}, "Source", source), h("label", {}, "Headers", head), h("label", {}, "Body, or the whole request", body),
    h("div", { class: "actions" }, button, h("span", { class: "faint small" }, "Nothing is written, and nothing runs.")));
  fill(page,
    h("div", { class: "head" }, h("h1", {}, "Explain"), h("p", {}, "Paste a delivery as the sender shows it, and see step by step what would happen, and why.")),
    h("div", { class: "grid halves" }, form, result));
  result.append(h("div", { class: "card empty" }, h("h2", {}, "The steps appear here"), h("p", {}, "Source, signature, fields, filter, route, identities, and whether it would act.")));

  const walk = async (delivery) => {
    button.disabled = true;
    try {
      const { deliveries } = await api.explain(delivery);
      fill(result, deliveries.map(drawn));
    } catch (error) {
      // The API describes invalid input in a sentence.
      if (!signal.aborted) trouble(result, error.status === 400 && error.reason ? error.reason.replace(/^./, (first) => first.toUpperCase()) : error);
    }
    button.disabled = false;
  };
  form.addEventListener("submit", (submit) => {
    submit.preventDefault();
    const whole = !head.value.trim() && /^\s*([A-Z]+ \S+ HTTP\/|[\w-]+:\s)/.test(body.value);
    const delivery = whole ? { raw: body.value } : { headers: headers(head.value), body: body.value };
    // A JSON body alone needs no content type.
    if (!whole && /^\s*[{[]/.test(body.value)) delivery.headers["content-type"] ??= "application/json";
    if (source.value) delivery.source = source.value;
    walk(delivery);
  });
  if (event) {
    form.prepend(h("p", { class: "notice" }, h("span", {}, "The steps of the delivery that made ", eventLink(event), ", evaluated again now.")));
    await walk({ event });
  }
}

const SIGNATURE = {
  none: [null, "not required"],
  right: [true, "valid"],
  wrong: [false, "invalid for this body"],
  old: [false, "valid, but too old"],
  unchecked: [null, "not checked"],
};

function drawn(told) {
  const steps = [];
  const step = (ok, name, ...detail) => steps.push(h("li", { class: ok === true ? "ok" : ok === false ? "no" : "" }, icon(ok === true ? "check" : ok === false ? "close" : "right"), h("span", { class: "step-name" }, name), h("div", { class: "detail" }, detail)));
  const asked = ({ text, holds, terms }) => [h("code", {}, text), holds === false ? (terms ?? []).filter((term) => !term.holds).map((term) => h("div", { class: "soft" }, term.saw ?? `${term.text} is false`)) : null];

  step(true, "Source", told.source.name, h("span", { class: "faint" }, ` ${told.source.chosen}`));
  const [fits, words] = SIGNATURE[told.signature.is] ?? [null, told.signature.is];
  step(fits, "Signature", `${told.signature.by}: ${words}`, told.signature.why ? h("div", { class: "soft" }, told.signature.why) : null);
  if (told.kind) step(told.kind.same, "Kind", told.kind.same ? String(told.kind.was) : `was ${told.kind.was}, wanted ${told.kind.wanted}`);
  if (told.fields) step(told.fields.every(({ is }) => is !== "missing") ? true : null, "Fields", told.fields.map(({ name, is, value }) => h("div", {}, h("span", { class: "faint" }, name, " "), is === "missing" ? h("i", {}, "missing") : String(value), is === "default" ? h("span", { class: "faint" }, " (default)") : null)));
  if (told.require) step(told.require.holds, "Requires", asked(told.require));
  if (told.when) step(told.when.holds, "Acts when", asked(told.when));
  for (const route of told.routes) step(route.holds, `Route ${route.name ?? ""}`, route.text ? asked(route) : "matches everything");
  for (const event of told.events) step(true, "Identities", event.identities.map(({ same }) => h("div", {}, sameWords(same))), event.register ? h("div", {}, sameWords("change")) : null);
  const [good, ...said] = ends(told.would);
  const inZone = (text) => text.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (at) => full(Date.parse(at)));
  const sentence = said.flat(Infinity).map((part) => (typeof part === "string" ? inZone(part) : part));
  return h("section", { class: "stack" },
    h("div", { class: `notice ${good === true ? "good" : good === false ? "bad" : "warn"}`, id: "would" }, icon(good === true ? "check" : good === false ? "close" : "explain"), h("b", {}, sentence)),
    told.notes.map((note) => h("p", { class: "soft small" }, note)),
    h("ol", { class: "card walk" }, steps));
}

function ends(would) {
  if (would.in_time) return [false, `It would be refused now (${would.status}): ${would.why}. At its time: `, ...ends(would.in_time).slice(1)];
  if (would.be === "refused") return [false, `It would be refused (${would.status}): ${would.why}`];
  if (would.be === "ignored") return [null, `It would be ignored: ${would.why}`];
  const all = would.events ?? [];
  const words = all.map(({ be, of, same, parked, stands }) => {
    if (be === "new") return [parked ? "be a new event and wait for its group" : "be a new event and run"];
    if (be === "recorded") return ["be recorded"];
    if (be === "resumed") return ["give ", eventLink(of), ` another attempt although it may have acted; it is ${stands ?? "dead"}`];
    if (be === "rearmed") return ["bring ", eventLink(of), ` back, which is ${stands ?? "dead"}`];
    if (be === "published_again") return ["publish ", eventLink(of), ` again, which is ${stands}; the worker decides`];
    if (be === "stale") return ["be stale: older than ", eventLink(of)];
    if (be === "duplicate") return of === "imported" ? [`be a duplicate of an imported event: ${sameWords(same)}`] : ["be a duplicate of ", eventLink(of), stands ? `, ${stands}` : "", `: ${sameWords(same)}`];
    return ["depend on the store's state at that time"];
  });
  const key = (said) => said.map((part) => part.textContent ?? part).join("");
  const each = words.filter((said, i) => words.findIndex((other) => key(other) === key(said)) === i);
  const good = all.every(({ be }) => ["new", "recorded", "rearmed", "resumed", "published_again"].includes(be)) ? true : null;
  return [good, "It would ", each.map((said, i) => [i ? "; " : "", said])];
}
