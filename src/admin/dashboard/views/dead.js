// Dead letters: events that are retried only on request.

import { h, icon, fill } from "../dom.js";
import { api, mayAct } from "../api.js";
import { live, atMost } from "../live.js";
import { confirm, toast, trouble } from "../dialog.js";
import { many, shortId } from "../words.js";
import { when } from "../time.js";
import { row, table } from "./rows.js";

const CAUSES = [["", "All"], ["failed", "Failed"], ["rejected", "Rejected"], ["in_doubt", "In doubt"], ["damaged", "Damaged"], ["cancelled", "Cancelled"], ["over_budget", "Over budget"], ["unhealthy", "Unhealthy"]];

/** Maximum events per page whose reason is loaded. */
const REASONS = 50;

export async function dead({ page, signal, asked, go, recount }) {
  const filter = { state: "dead", cause: asked.get("cause") ?? "", source: asked.get("source") ?? "" };
  const { node, body } = table(["Event", "State", "Source", "Fields, why", "Attempts", "Dead since", mayAct() ? "" : null].filter((name) => name !== null));
  const more = h("div", { class: "more" });
  const all = h("button", { type: "button", id: "replay-all", hidden: true }, icon("replay"), "Replay all that match");
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Cause" }, CAUSES.map(([cause, label]) =>
    h("button", { type: "button", "aria-pressed": String(cause === filter.cause), onclick: () => go(`/dead${cause ? `?cause=${cause}` : ""}`) }, label)));
  fill(page,
    h("div", { class: "head" }, h("h1", {}, "Dead letters"), h("div", { class: "actions" }, all),
      h("p", {}, "Events that ended without being done. They are not retried automatically: replay those that should run again, forget the others.")),
    h("div", { class: "head" }, tabs),
    h("div", { class: "card" }, node, more));

  const one = (event) => {
    const replay = mayAct()
      ? h("td", { class: "tight" }, h("button", { type: "button", class: "replay-one", "aria-label": `Replay ${shortId(event.event)}`, onclick: () => again(event) }, icon("replay"), "Replay"))
      : null;
    const made = row(event, [h("td", { class: "tight", data: { label: "dead since" } }, when(event.ended_at)), replay]);
    made.querySelector("td.wide").append(h("div", { class: "because", data: { why: deathOf(event) } }, reasons.get(deathOf(event)) ?? ""));
    return made;
  };
  // The reason is in each event's details: loaded one after another, once, for those on the page.
  const reasons = new Map();
  const deathOf = (event) => `${event.event} ${event.ended_at}`;
  const explain = async (events) => {
    for (const event of events.slice(0, REASONS).filter((one) => !reasons.has(deathOf(one)))) {
      const { why = "" } = await api.event(event.event, signal);
      reasons.set(deathOf(event), why.replace(/^dead: /, ""));
      const line = body.querySelector(`[data-why="${CSS.escape(deathOf(event))}"]`);
      if (line) fill(line, reasons.get(deathOf(event)));
    }
  };
  let next = null;
  let drawn = null;
  const read = () => api.events({ ...filter, limit: 50 }, signal);
  const load = async (first) => {
    first ??= await read();
    drawn = JSON.stringify(first);
    fill(body, first.events.map(one));
    next = first.next;
    foot();
    explain(first.events).catch(() => {}); // the event or the page is gone
  };
  const older = async () => {
    const rest = await api.events({ ...filter, limit: 50, before: next }, signal);
    body.append(...rest.events.map(one));
    next = rest.next;
    foot();
    explain(rest.events).catch(() => {});
  };
  const foot = () => {
    node.hidden = !body.childElementCount;
    all.hidden = !mayAct() || !body.childElementCount;
    if (next) fill(more, h("button", { type: "button", onclick: () => older().catch((error) => trouble(more, error, older)) }, "Older events"));
    else if (body.childElementCount) fill(more, h("span", { class: "faint" }, many(body.childElementCount, "dead letter")));
    else fill(more, h("div", { class: "empty" }, h("h2", {}, filter.cause ? "No matches" : "No dead letters"), h("p", {}, "Every accepted event is done or in progress.")));
  };
  const again = async (event) => {
    if (!(await confirm({ title: `Replay ${shortId(event.event)}?`, text: `It runs again on route ${event.route} of ${event.source}, with its original body.`, yes: "Replay" }))) return;
    await tried(() => api.replay(event.event), `${shortId(event.event)} runs again`);
  };
  const tried = async (what, said) => {
    try {
      const done = await what();
      toast(typeof said === "function" ? said(done) : said);
    } catch (error) {
      toast(error.message, { bad: true });
    }
    recount();
    if (!signal.aborted) await load().catch(() => {});
  };
  all.addEventListener("click", async () => {
    let counted;
    try {
      counted = await api.countReplay(filter);
    } catch (error) {
      toast(error.message, { bad: true });
      return;
    }
    const which = filter.cause ? `dead (${filter.cause.replace("_", " ")})` : "dead";
    const text = `${many(counted.count, "event")} ${counted.count === 1 ? "is" : "are"} ${which}. They run again, oldest first, each with its original body.${counted.capped ? " There are more; repeat this for the rest." : ""}`;
    if (!counted.count) return void toast("Nothing matches any more");
    if (!(await confirm({ title: `Replay ${many(counted.count, "event")}?`, text, yes: `Replay ${many(counted.count, "event")}` }))) return;
    await tried(() => api.replayAll(filter, counted.guard), ({ replayed, refused }) => `${many(replayed, "event")} run again${refused.length ? `; ${refused.length} cannot: ${refused[0].reason}` : ""}`);
  });
  const refresh = atMost(1500, () => load().catch(() => {}), signal);
  live.on("state", (event) => {
    const shown = body.querySelector(`tr[data-event="${CSS.escape(event.event)}"]`);
    if (shown || event.state === "dead") refresh();
  }, signal);
  live.on("again", refresh, signal);
  // Something changed, maybe elsewhere: redraw only if the list differs, so that buttons do not move.
  const look = async () => {
    const first = await read();
    if (JSON.stringify(first) !== drawn) await load(first);
  };
  live.on("more", atMost(1500, () => look().catch(() => {}), signal), signal);
  await load();
}
