// Deliveries that did not become events, and why not. They are in the nodes' memory only.

import { h, fill } from "../dom.js";
import { api } from "../api.js";
import { live, atMost } from "../live.js";
import { copier, count, many, verdictChip } from "../words.js";
import { when } from "../time.js";
import { because, reasonWords } from "./heard.js";

const size = (bytes) => (!bytes ? "–" : bytes < 1024 ? `${count(bytes)} B` : bytes < 1 << 20 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / (1 << 20)).toFixed(1)} MB`);

export async function away({ page, signal, asked, go }) {
  const filter = { verdict: asked.get("verdict") ?? "", source: asked.get("source") ?? "" };
  const body = h("tbody");
  const table = h("table", { class: "cards" }, h("thead", {}, h("tr", {}, ["When", "Verdict", "Source", "Reason", "Response", "Delivery", "Size"].map((name) => h("th", { scope: "col" }, name)))), body);
  const foot = h("div", { class: "more" });
  const nodes = h("div", { class: "stack" });
  const aside = h("div");
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Verdict" }, [["", "Both"], ["refused", "Refused"], ["ignored", "Ignored"]].map(([verdict, label]) =>
    h("button", { type: "button", "aria-pressed": String(verdict === filter.verdict), onclick: () => go(`/turned-away${verdict ? `?verdict=${verdict}` : ""}`) }, label)));
  fill(page,
    h("div", { class: "head" }, h("h1", {}, "Turned away"),
      h("p", {}, "The last deliveries that did not become events. Refused: bad signature or malformed. Ignored: verified, but no filter matched; and handshakes, which were answered. Their bodies are not kept.")),
    h("div", { class: "head" }, tabs), nodes, h("div", { class: "card" }, table, foot), aside);

  const reason = (turned) => {
    const [short, long] = because(turned);
    return h("div", {}, h("div", {}, short), long ? h("div", { class: "small soft" }, long) : null);
  };
  const one = (turned) => h("tr", {},
    h("td", { class: "tight" }, when(turned.at)),
    h("td", { class: "tight" }, verdictChip(turned.verdict)),
    h("td", { class: "tight" }, turned.source ?? h("code", {}, turned.path ?? "–"), turned.from ? h("div", { class: "small soft" }, turned.from) : null),
    h("td", { class: "wide" }, reason(turned)),
    h("td", { class: "tight", data: { label: "response" } }, String(turned.status)),
    h("td", { class: "tight" }, turned.delivery ? [h("code", { title: turned.delivery }, turned.delivery.length > 13 ? `${turned.delivery.slice(0, 8)}…` : turned.delivery), copier(turned.delivery, "Copy the delivery id")] : h("span", { class: "faint" }, "–")),
    h("td", { class: "tight last num" }, size(turned.bytes)));

  const message = (lies) => h("li", {},
    verdictChip("refused"),
    h("div", { class: "came" }, h("div", {}, reasonWords(lies.why)), h("div", { class: "small soft" }, `${lies.subject} · ${size(lies.bytes)}`),
      h("details", {}, h("summary", {}, "First bytes"), h("pre", {}, lies.head))),
    h("div", { class: "whence" }, h("div", {}, lies.source, h("span", { class: "faint" }, " · "), when(lies.at)),
      h("div", { class: "delivery-id" }, h("code", {}, lies.message), copier(lies.message, "Copy the message's name"))));
  const drawAside = (messages) => {
    fill(aside, messages.length && filter.verdict !== "ignored"
      ? h("section", { class: "card", id: "quarantine" },
        h("div", { class: "card-head" }, h("h2", {}, `${many(messages.length, "message")} in quarantine`)),
        h("ul", { class: "heard" }, messages.map(message)),
        h("div", { class: "more" }, h("span", { class: "faint" }, "Messages of a stream that were acknowledged without an event: bad signature or malformed.")))
      : null);
  };
  const draw = ({ deliveries: all, nodes: from }) => {
    fill(body, all.map(one));
    table.hidden = !all.length;
    const silent = from.filter(({ answered }) => !answered);
    fill(nodes, silent.map(({ address, why }) => h("p", { class: "notice warn" }, `The node at ${address} did not respond${why ? `: ${why}` : ""}. Its deliveries are missing here.`)));
    fill(foot, all.length
      ? h("span", { class: "faint" }, "The last 64 refused and 64 ignored per source and node. ", h("a", { href: "/explain" }, "Explain one"))
      : h("div", { class: "empty" }, h("h2", {}, "Nothing was turned away"), h("p", {}, "Since the nodes started, every delivery was verified and accepted.")));
  };
  // Unchanged content is not redrawn, to keep what is selected and unfolded.
  const drawn = new Map();
  const unlessDrawn = (told, how) => {
    const text = JSON.stringify(told);
    if (drawn.get(how) !== text) how(told);
    drawn.set(how, text);
  };
  const load = async () => {
    unlessDrawn(await api.deliveries({ ...filter, verdict: filter.verdict || "refused,ignored", limit: 200 }, signal), draw);
    const { messages } = await api.quarantine(signal);
    unlessDrawn(messages.filter(({ source }) => !filter.source || source === filter.source), drawAside);
  };
  const refresh = atMost(1000, () => load().catch(() => {}), signal);
  live.on("delivery", ({ verdict }) => {
    if (verdict === "refused" || verdict === "ignored") refresh();
  }, signal);
  live.on("again", refresh, signal);
  live.on("more", refresh, signal);
  await load();
}
