// What became of a delivery that made no event of its own: the verdict, and why, with the event it leads to.

import { h, fill } from "../dom.js";
import { api } from "../api.js";
import { copier, eventLink, many, sameWords, verdictChip } from "../words.js";
import { when } from "../time.js";

const REASONS = {
  bad_signature: "bad signature",
  missing_field: "a field is missing",
  filtered: "filtered out",
  unknown_path: "no source listens there",
  too_large: "too large",
  too_slow: "too slow",
  kind_mismatch: "another kind than it says",
  key_reused: "its key was used for another body",
  method: "not a POST",
  unavailable: "could not be taken; the sender was asked to come again",
};

export const reasonWords = (reason) => REASONS[reason] ?? String(reason).replaceAll("_", " ");

/** Why, in a few words and in a sentence. */
export function because({ verdict, reason, why, same, event }) {
  if (verdict === "duplicate") return [event ? ["repeats ", eventLink(event)] : "was done before there was this store", sameWords(same)];
  if (verdict === "stale") return [["came too late: ", eventLink(event), " is newer"], null];
  return [reasonWords(reason), why];
}

/** Deliveries with this in their id, where there are any; says how many. */
export async function found(node, text, signal) {
  const { deliveries } = await api.deliveries({ text, limit: 20 }, signal);
  const one = (heard) => {
    const [short, long] = because(heard);
    return h("li", {},
      verdictChip(heard.verdict),
      h("div", { class: "came" }, h("div", {}, short), long ? h("div", { class: "small soft" }, long) : null),
      h("div", { class: "whence" }, h("div", {}, heard.source ?? h("code", {}, heard.path ?? "–"), h("span", { class: "faint" }, ` · answered ${heard.status} · `), when(heard.at)),
        h("div", { class: "delivery-id" }, h("code", {}, heard.delivery), copier(heard.delivery, "Copy the delivery id"))));
  };
  fill(node, deliveries.length
    ? h("section", { class: "card", id: "found" }, h("div", { class: "card-head" }, h("h2", {}, many(deliveries.length, "delivery", "deliveries"), " that made no event of ", deliveries.length === 1 ? "its" : "their", " own")), h("ul", { class: "heard" }, deliveries.map(one)))
    : null);
  return deliveries.length;
}
