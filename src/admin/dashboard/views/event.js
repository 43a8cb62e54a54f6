// One event as a timeline: its deliveries, its attempts with their output, and its state.

import { h, icon, fill, say } from "../dom.js";
import { api, mayAct, session } from "../api.js";
import { live, Live, atMost } from "../live.js";
import { Screen } from "../ansi.js";
import { tree } from "../json.js";
import { confirm, toast, trouble } from "../dialog.js";
import { chip, copier, eventLink, many, sameWords, shortId, stateWord, verdictChip } from "../words.js";
import { when, length, now } from "../time.js";

/** Maximum duplicates of one event that the store keeps. */
const NOTED_MAX = 16;

/** Maximum characters of a field's value before it is folded. */
const LONG_VALUE = 120;

/** What a cause means for what happens next. */
const DEAD = {
  failed: "all attempts failed; it runs again only after a replay or a redelivery",
  rejected: "it was rejected: a retry would not help",
  in_doubt: "it is unknown whether it acted: review it, then replay or forget it",
  damaged: "its stored data is damaged",
  cancelled: "it was cancelled by an operator",
  over_budget: "its route had no budget left; it runs only after a replay",
  unhealthy: "what it deployed is not healthy: it runs again only after a replay",
};

export async function event({ page, signal, parts: [name], entitle, go, recount }) {
  let story;
  try {
    story = await api.event(name, signal);
  } catch (error) {
    if (error.reason === "several_events") return several(page, error.body.events);
    throw error;
  }
  const id = story.event;
  if (name !== id) history.replaceState({}, "", `/events/${encodeURIComponent(id)}`);
  entitle(`Event ${shortId(id)}`);
  const view = new View(page, signal, go, recount);
  view.read(story);

  const refresh = atMost(400, async () => {
    try {
      view.read(await api.event(id, signal));
    } catch (error) {
      if (error.status === 404) view.gone();
    }
  }, signal);
  live.on("state", (seen) => {
    if (seen.event === id) view.moved(seen);
    if (seen.event === id || seen.event === view.story.behind || seen.superseded_by === id || seen.rollback?.from === id) refresh();
  }, signal);
  live.on("delivery", (seen) => {
    if (seen.event !== id) return;
    view.heard(seen);
    refresh();
  }, signal);
  live.on("again", refresh, signal);
  live.on("more", refresh, signal);
}

function several(page, events) {
  fill(page, h("div", { class: "head" }, h("h1", {}, "Several events have that name")), h("ul", { class: "card card-body grid" }, events.map((event) => h("li", {}, eventLink(event.event), " ", chip(event)))));
}

class View {
  constructor(page, signal, go, recount) {
    Object.assign(this, { signal, go, recount });
    this.screens = new Map();
    this.repeats = [];
    this.unfolded = new Set();
    this.head = h("div", {});
    this.timeline = h("ol", { class: "timeline" });
    this.facts = h("dl", { class: "facts" });
    this.receipt = h("div", { hidden: true });
    this.body = h("div", {});
    fill(page, this.head, h("div", { class: "grid two" },
      h("div", {}, h("section", { class: "card", id: "timeline" }, h("div", { class: "card-head" }, h("h2", {}, "What happened")), this.timeline)),
      h("div", {}, h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Facts")), h("div", { class: "card-body" }, this.facts)), this.receipt, this.body)));
    signal.addEventListener("abort", () => this.stream?.close());
  }

  /** Draws the event, unless it is unchanged, to keep what is selected. */
  read(story) {
    const text = JSON.stringify(story);
    if (text === this.drawn) return;
    this.draw(story);
    this.drawn = text;
  }

  draw(story) {
    this.story = story;
    this.listen();
    this.drawHead();
    this.drawTimeline();
    this.drawFacts();
    this.drawReceipt();
    if (story.has_body !== this.hadBody) this.drawBody();
    this.hadBody = story.has_body;
  }

  /** Applies a change from the live stream, before the event is loaded again. */
  moved(seen) {
    for (const of of ["due", "waiting_for", "until", "node", "how", "superseded_by", "cause", "ended_at", "published_again", "digest", "rolled_back_by"]) delete this.story[of];
    Object.assign(this.story, seen);
    this.drawn = null;
    this.listen();
    this.drawHead();
    this.drawTimeline();
  }

  /** Adds a duplicate from the live stream. The store records it a little later. */
  heard({ at, delivery, same }) {
    if (!same) return;
    this.repeats.push({ at, delivery: delivery ?? null, same });
    this.drawTimeline();
  }

  /** The recorded duplicates, and those not recorded yet. */
  seen() {
    const noted = this.story.deliveries;
    const late = this.repeats.filter((one) => !noted.some((other) => other.delivery === one.delivery && other.at >= one.at.slice(0, 17)));
    return noted.length >= NOTED_MAX ? noted : [...noted, ...late];
  }

  gone() {
    this.stream?.close();
    fill(this.head, h("div", { class: "notice warn" }, "This event and its keys were forgotten: the same delivery would act again."));
  }

  /** Opens the event's own stream until it ends. */
  listen() {
    const over = this.story.state === "done" || this.story.state === "dead";
    if (over) {
      this.stream?.close();
      this.stream = null;
    } else if (!this.stream) {
      this.stream = new Live(`/api/live?event=${encodeURIComponent(this.story.event)}`, ["output"]);
      this.stream.on("status", (state) => { this.running().node.dataset.state = state; });
      this.stream.on("output", ({ event, text, so_far: whole }) => event === this.story.event && this.write(text, whole));
      this.stream.open();
    }
  }

  drawHead() {
    const { story } = this;
    const over = story.state === "done" || story.state === "dead";
    const key = JSON.stringify([story.state, story.cause, story.how, story.why, story.life, story.has_body, mayAct()]);
    if (key === this.headKey) return;
    const held = document.activeElement?.dataset?.key;
    this.headKey = key;
    const button = (name, label, icn, then, more = {}) => h("button", { type: "button", id: name, onclick: then, ...more }, icon(icn), label);
    const act = mayAct()
      ? [
        over && (story.has_body || story.rollback) ? button("replay", "Replay", "replay", () => this.replay(), { data: { key: "r" } }) : null,
        over ? null : button("cancel", "Cancel", "stop", () => this.cancel(), { data: { key: "c" } }),
        over ? button("forget", "Forget", "forget", () => this.forget(), { class: "quiet-danger" }) : null,
      ]
      : null;
    fill(this.head, h("div", { class: "head" },
      h("div", { class: "event-head" }, h("a", { class: "crumb", href: "/events", data: { up: "" } }, "Events"), h("h1", { title: story.event }, shortId(story.event)), copier(story.event, "Copy the event's id"), chip(story)),
      h("div", { class: "actions" }, act, story.has_body && !story.notification ? h("a", { class: "button", href: `/explain?event=${encodeURIComponent(story.event)}` }, icon("explain"), "Explain") : null),
      h("p", { class: "standing", id: "why" }, story.why)));
    if (held) this.head.querySelector(`[data-key="${held}"]`)?.focus();
  }

  drawTimeline() {
    const { story } = this;
    const items = [{ at: story.received_at, order: 0, node: this.moment("accepted", "Delivery accepted", story.received_at, [h("span", { class: "because" }, "new", story.delivery ? [": ", this.deliveryId(story.delivery)] : null)]) }];
    const repeats = this.seen();
    for (const seen of repeats) {
      items.push({ at: seen.at, order: 1, node: this.moment("duplicate", "Duplicate", seen.at, seen.delivery ? [this.deliveryId(seen.delivery)] : [], h("span", { class: "because" }, sameWords(seen.same))) });
    }
    const left = story.duplicates - repeats.length;
    if (left > 0) items.push({ at: repeats.at(-1)?.at ?? story.received_at, order: 2, node: h("li", { class: "t-duplicate" }, h("span", { class: "because" }, `and ${many(left, "more duplicate")}`)) });
    let life = 1;
    for (const tried of story.attempts) {
      if (tried.life > life) items.push({ at: tried.started_at, order: 2, node: this.moment("waiting", `Replayed: life ${tried.life}`, null, []) });
      life = Math.max(life, tried.life);
      items.push({ at: tried.started_at, order: 3, node: this.attempt(tried) });
    }
    items.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : a.order - b.order));
    if (story.life > life && story.state !== "done" && story.state !== "dead") items.push({ node: this.moment("waiting", `Replayed: life ${story.life}`, null, []) });
    if (story.published_again) items.push({ node: this.publishedAgain(story.published_again) });
    items.push({ node: this.standing() });
    fill(this.timeline, items.map(({ node }) => node));
  }

  moment(kind, title, at, detail, extra = null) {
    return h("li", { class: `t-${kind}` }, h("div", { class: "moment" }, h("h3", {}, title), extra, at ? when(at, { form: "clock" }) : null), detail);
  }

  /** Its delivery was repeated, so it was published again, or will be. */
  publishedAgain({ times, last_at, message }) {
    const over = this.story.state === "done" || this.story.state === "dead";
    const title = over ? `Published again${times > 1 ? `: ${many(times, "time")}` : ""}` : "To be published again";
    return this.moment("waiting", title, over ? last_at : null, [h("div", { class: "because" }, "its delivery was repeated; message ", h("code", {}, message))]);
  }

  deliveryId(id) {
    return h("span", { class: "delivery-id" }, h("code", {}, id), copier(id, "Copy the delivery id"));
  }

  attempt(tried) {
    const took = Date.parse(tried.ended_at) - Date.parse(tried.started_at);
    return this.moment(tried.outcome, `Attempt ${tried.attempt}`, tried.started_at, [
      tried.why ? h("div", { class: "because" }, tried.why) : null,
      tried.output ? this.output(`${tried.life}.${tried.attempt}`, tried.output) : null,
    ], [verdictChip(tried.outcome), h("span", { class: "faint small" }, `took ${length(took)}`)]);
  }

  /** The output of a command; reuses its element, to keep what is selected. */
  output(key, text) {
    let screen = this.screens.get(key);
    if (!screen) {
      screen = makeScreen("Output");
      this.screens.set(key, screen);
    }
    if (screen.text !== text) {
      screen.screen.clear();
      screen.screen.write(text);
      screen.text = text;
      const lines = text.split("\n").length - (text.endsWith("\n") ? 1 : 0);
      say(screen.says, many(lines, "line"));
    }
    return screen.node;
  }

  /** The output of the running attempt. */
  running() {
    const key = `running ${this.story.life}.${this.story.attempt}`;
    let screen = this.screens.get(key);
    if (!screen) {
      screen = makeScreen("Live output");
      screen.node.id = "live-output";
      screen.text = "";
      this.screens.set(key, screen);
    }
    return screen;
  }

  /** `whole`: the text is all output so far, and replaces what is on the page. */
  write(text, whole) {
    const screen = this.running();
    const box = screen.pre;
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    if (whole) {
      screen.screen.clear();
      screen.lines = 0;
    }
    screen.screen.write(text);
    screen.lines = (screen.lines ?? 0) + text.split("\n").length - 1;
    say(screen.says, many(screen.lines, "line"));
    if (atEnd) box.scrollTop = box.scrollHeight;
  }

  standing() {
    const { story } = this;
    if (story.state === "running") {
      const here = !story.node || story.node === session.node;
      const where = here ? `on node ${story.node ?? ""}` : `on node ${story.node}; this page is from node ${session.node}, and gets the output about once a second`;
      return this.moment("running", `Attempt ${story.attempt} running`, null, [h("div", { class: "because" }, where), this.running().node]);
    }
    if (story.state === "waiting") {
      const due = story.due ? (Date.parse(story.due) > now() ? ["the next attempt is due ", when(story.due)] : "it starts when a node has capacity") : story.behind ? ["its group is busy with ", eventLink(story.behind)] : "for its group";
      const budget = story.waiting_for === "budget" && Date.parse(story.due) > now() ? ["its route's budget is used up; the next attempt may begin ", when(story.due)] : null;
      return this.moment("waiting", "Waiting", null, [h("div", { class: "because" }, budget ?? due)]);
    }
    if (story.state === "done") {
      const how = story.how === "superseded" ? [story.why.includes("deployed the same digest") ? "what it would deploy had been deployed by " : "another event changed the same subject: ", eventLink(story.superseded_by)] : story.how === "recorded" ? "recorded; its route has no action" : "acted once";
      return this.moment("done", story.how === "superseded" ? "Superseded" : "Done", story.ended_at, [h("div", { class: "because" }, how)]);
    }
    return this.moment("dead", "Dead", story.ended_at, [h("div", { class: "because" }, DEAD[story.cause] ?? story.cause)]);
  }

  drawFacts() {
    const { story } = this;
    const fact = (name, ...value) => [h("dt", {}, name), h("dd", {}, value)];
    const from = `/events?source=${encodeURIComponent(story.source)}`;
    fill(this.facts,
      fact("source", h("a", { href: from }, story.source)),
      fact("route", h("a", { href: `${from}&route=${encodeURIComponent(story.route)}` }, story.route)),
      fact("received", when(story.received_at)),
      story.ended_at ? fact("ended", when(story.ended_at), h("span", { class: "faint" }, ` · after ${length(Date.parse(story.ended_at) - Date.parse(story.received_at))}`)) : null,
      story.published_again ? fact("published again", many(story.published_again.times, "time")) : null,
      fact("duplicates", story.duplicates ? many(story.duplicates, "duplicate") : "none"),
      story.rollback ? fact("rolls back", "from ", eventLink(story.rollback.from), ", which is not healthy, to ", eventLink(story.rollback.to), ", the last good one") : null,
      story.rolled_back_by ? fact("roll-back", "rolled back by ", eventLink(story.rolled_back_by.event), ` (${stateWord(story.rolled_back_by)})`) : story.cause === "unhealthy" ? fact("roll-back", "not rolled back") : null,
      story.digest ? fact("digest", h("code", {}, story.digest)) : null,
      Object.entries(story.fields).map(([name, value]) => fact(name, this.value(name, String(value)))),
      fact("recognised by", h("ul", { class: "bullets" }, (story.identities_in_words ?? story.identities.map((same) => ({ words: sameWords(same) }))).map(({ words }) => h("li", {}, words)))),
      story.notification ? fact("tells of", eventLink(story.notification.of), h("span", { class: "faint" }, ` · ${story.notification.on}`)) : null,
      story.notifications?.length ? fact("told by", story.notifications.map((id, i) => [i ? ", " : "", eventLink(id)])) : null,
      story.supersedes?.length ? fact("superseded", story.supersedes.map((id, i) => [i ? ", " : "", eventLink(id)])) : null,
      fact("event", h("code", {}, story.event)));
  }

  /** A field's value with a link to the events that have it; a long one is folded. */
  value(name, value) {
    const link = (text) => h("a", { class: "field-link", href: `/events?source=${encodeURIComponent(this.story.source)}&field.${encodeURIComponent(name)}=${encodeURIComponent(value)}`, title: "Events with the same value" }, text);
    if (value.length <= LONG_VALUE || this.unfolded.has(name)) return link(value);
    const more = h("button", { class: "ghost tiny", type: "button" }, `all ${many(value.length, "character")}`);
    more.addEventListener("click", () => {
      this.unfolded.add(name);
      this.drawFacts();
    });
    return [link(`${value.slice(0, LONG_VALUE)}…`), " ", more];
  }

  drawReceipt() {
    const { receipt } = this.story;
    const key = JSON.stringify(receipt ?? null);
    if (key === this.receiptKey) return;
    this.receiptKey = key;
    if (!receipt || (!receipt.body && !receipt.headers.length)) return;
    this.receipt.hidden = false;
    fill(this.receipt, h("section", { class: "card" },
      h("div", { class: "card-head" }, h("h2", {}, "Receipt"), h("span", { class: "chip" }, `status ${receipt.status}`)),
      receipt.headers.length ? h("dl", { class: "facts card-body" }, receipt.headers.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])) : null,
      receipt.body ? h("div", { class: "body-view" }, tree(receipt.body) ?? receipt.body) : null,
      receipt.cut ? h("p", { class: "card-body faint small" }, "Truncated: it is larger than the limit.") : null));
  }

  drawBody() {
    const { story, signal } = this;
    if (!story.has_body) return void fill(this.body, h("section", { class: "card card-body faint" }, story.rollback ? "It is a roll-back, with the body of the last good event." : "Its body is no longer kept: it cannot be replayed."));
    const view = h("div", { class: "body-view", tabindex: "0", "aria-label": "Body" });
    const buttons = {};
    const show = async (which) => {
      for (const [name, button] of Object.entries(buttons)) button.setAttribute("aria-pressed", String(name === which));
      try {
        if (which === "headers") {
          const { headers } = await api.headers(story.event, signal);
          fill(view, headers.length ? h("dl", { class: "facts" }, headers.map(({ name, value }) => [h("dt", {}, name), h("dd", { class: value === "•••" ? "masked" : "" }, value)])) : h("span", { class: "faint" }, "none were kept"));
          return;
        }
        this.text ??= await api.body(story.event, signal);
        fill(view, (which === "tree" && tree(this.text)) || this.text || h("span", { class: "faint" }, "empty"));
      } catch (error) {
        if (!signal.aborted) trouble(view, error);
      }
    };
    for (const [name, label] of [["tree", "Body"], ["raw", "Raw"], ["headers", "Headers"]]) buttons[name] = h("button", { type: "button", onclick: () => show(name) }, label);
    fill(this.body, h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Delivery"), h("div", { class: "tabs", role: "group", "aria-label": "Show" }, Object.values(buttons))), view));
    show("tree");
  }

  async replay() {
    const { story } = this;
    const text = `It runs again on route ${story.route} of ${story.source}, with its original body. Receivers see it as ${shortId(story.event)}.${story.life + 1}.`;
    if (await confirm({ title: `Replay ${shortId(story.event)}?`, text, yes: "Replay" })) await this.tried(() => api.replay(story.event), "It runs again");
  }

  async cancel() {
    const { story } = this;
    const text = story.state === "running" ? "Its command is killed. What it has already done is not undone." : "It will not run. It can be replayed later.";
    if (await confirm({ title: `Cancel ${shortId(story.event)}?`, text, yes: "Cancel it", danger: true })) await this.tried(() => api.cancel(story.event), (now) => (now.state === "running" ? "Cancelling: its node will end it" : "Cancelled"));
  }

  async forget() {
    const { story } = this;
    const text = "Deletes the event with all its keys, attempts and output. If the same delivery arrives again, it acts again.";
    if (!(await confirm({ title: `Forget ${shortId(story.event)}?`, text, yes: "Forget it", danger: true }))) return;
    if (await this.tried(() => api.forget(story.event), "Forgotten")) this.go("/events");
  }

  async tried(what, said) {
    let worked = true;
    try {
      const now = await what();
      if (now.state) this.moved(now);
      toast(typeof said === "function" ? said(now) : said);
    } catch (error) {
      worked = false;
      toast(error.message, { bad: true });
    }
    this.recount();
    return worked;
  }
}

function makeScreen(title) {
  const pre = h("pre", { tabindex: "0", "aria-label": title });
  const says = h("span", {});
  const made = { pre, says, screen: new Screen(pre), text: null };
  const copy = h("button", { class: "ghost tiny", type: "button", title: "Copy the output", "aria-label": "Copy the output" }, icon("copy"));
  copy.addEventListener("click", () => navigator.clipboard?.writeText(pre.innerText).then(() => toast("Copied")));
  made.node = h("div", { class: "output" }, h("div", { class: "output-head" }, h("span", {}, title), says, copy), pre);
  return made;
}
