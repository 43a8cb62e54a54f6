// Deliveries that made no event: the verdict, why, and the event they belong to.

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
  kind_mismatch: "not the kind its header names",
  key_reused: "its key was used for another body",
  method: "not a POST",
  address: "its address may not send",
  handshake: "a handshake of the sender",
  secret_missing: "its source has no secret yet",
  unavailable: "could not be accepted; the sender was asked to retry",
};

export const reasonWords = (reason) => REASONS[reason] ?? String(reason).replaceAll("_", " ");

/** Why, in a few words and in a sentence. */
export function because({ verdict, reason, why, same, event }) {
  if (verdict === "duplicate") return [event ? ["duplicate of ", eventLink(event)] : "duplicate of an imported event", sameWords(same)];
  if (verdict === "stale") return [["stale: ", eventLink(event), " is newer"], null];
  return [reasonWords(reason), why];
}

/** Shows the deliveries whose id contains this text; returns their number. */
export async function found(node, text, signal) {
  const { deliveries } = await api.deliveries({ text, limit: 20 }, signal);
  const one = (heard) => {
    const [short, long] = because(heard);
    return h("li", {},
      verdictChip(heard.verdict),
      h("div", { class: "came" }, h("div", {}, short), long ? h("div", { class: "small soft" }, long) : null),
      h("div", { class: "whence" }, h("div", {}, heard.source ?? h("code", {}, heard.path ?? "–"), h("span", { class: "faint" }, ` · response ${heard.status} · `), when(heard.at)),
        h("div", { class: "delivery-id" }, h("code", {}, heard.delivery), copier(heard.delivery, "Copy the delivery id"))));
  };
  fill(node, deliveries.length
    ? h("section", { class: "card", id: "found" }, h("div", { class: "card-head" }, h("h2", {}, many(deliveries.length, "delivery", "deliveries"), " without an event of ", deliveries.length === 1 ? "its" : "their", " own")), h("ul", { class: "heard" }, deliveries.map(one)))
    : null);
  return deliveries.length;
}
