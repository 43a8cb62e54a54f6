// The overview: numbers, charts, sources, and what needs attention.

import { h, icon, fill, say } from "../dom.js";
import { api } from "../api.js";
import { live, atMost } from "../live.js";
import { Bars, sparkline, split } from "../charts.js";
import { chip, count, eventLink, many, percent, sameShort, sameWords, verdictChip, copier, VERDICTS } from "../words.js";
import { clockIs, when, full, length } from "../time.js";
import { because } from "./heard.js";
import { address, budgetWords } from "./sources.js";

const WINDOWS = [["1h", "Hour"], ["24h", "Day"], ["7d", "Week"]];
const WINDOW_WORDS = { "1h": "in the last hour", "24h": "in the last day", "7d": "in the last week" };
const FEED_MAX = 40;
const TONES = ["duplicate", "third", "fourth", "stale", "accepted"];

const hours = (ms) => `${Math.max(1, Math.round(ms / 3_600_000))} h`;
const sum = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);

export async function overview({ page, signal, asked, go }) {
  const span = WINDOW_WORDS[asked.get("window")] ? asked.get("window") : "1h";
  const first = await api.overview(span, signal);
  const state = { span, sources: [] };
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Time" }, WINDOWS.map(([value, label]) =>
    h("button", { type: "button", "aria-pressed": String(value === span), onclick: () => go(value === "1h" ? "/" : `/?window=${value}`) }, label)));
  const drawn = new Drawn(state);
  fill(page, h("div", { class: "head" }, h("h1", {}, "Overview"), search(go), h("div", { class: "actions" }, tabs), drawn.whose), drawn.node);
  const feed = new Feed(drawn.feed);

  const show = async (seen) => {
    clockIs(seen.to);
    drawn.isEmpty = !sum(seen.deliveries) && !sum({ ...seen.events, capped: 0 });
    if (drawn.isEmpty && !state.sources.length) state.sources = (await api.sources(signal)).sources;
    drawn.draw(seen);
  };
  const refresh = atMost(2000, async () => {
    try {
      await show(await api.overview(span, signal));
    } catch { /* the frame shows that it is reconnecting */ }
  }, signal);
  live.on("delivery", (delivery) => {
    feed.delivery(delivery);
    refresh();
  }, signal);
  live.on("state", (event) => {
    feed.state(event);
    refresh();
  }, signal);
  live.on("again", refresh, signal);
  live.on("more", refresh, signal);
  await show(first);
  await feed.begin(signal);
}

/** The search box for a delivery id: why did it not run? */
function search(go) {
  const text = h("input", { type: "search", name: "text", maxlength: 200, "aria-label": "Find a delivery or an event", placeholder: "Didn't run? Paste its delivery id", data: { search: "" } });
  const form = h("form", { class: "search", role: "search" }, icon("find"), text);
  form.addEventListener("submit", (submit) => {
    submit.preventDefault();
    if (text.value.trim()) go(`/events?text=${encodeURIComponent(text.value.trim())}`);
  });
  return form;
}

/** A tile with a big number, updated in place. */
function tile(label, extra = "") {
  const value = h("div", { class: "value" }, "0");
  const hint = h("div", { class: "hint" });
  const parts = h("div", {});
  return { value, hint, parts, node: h("div", { class: `card tile ${extra}` }, h("div", { class: "label" }, label), value, hint, parts) };
}

class Drawn {
  constructor(state) {
    this.state = state;
    this.whose = h("p", { class: "small", hidden: true });
    this.needs = h("div", { class: "needs" });
    this.start = h("div", {});
    this.tiles = { saved: tile("Saved", "hero"), deliveries: tile("Deliveries"), events: tile("New events"), duplicates: tile("Duplicates recognised") };
    this.deliveries = new Bars("Deliveries", VERDICTS, { empty: "No deliveries in this time" });
    this.failures = new Bars("Failures", [{ name: "attempts that failed", tone: "stale" }, { name: "events dead", tone: "refused" }], { empty: "Nothing failed in this time" });
    this.same = new Bars("Duplicates recognised by", [], { empty: "No duplicates in this time" });
    this.sources = h("tbody");
    this.store = h("dl", { class: "facts" });
    this.budgets = h("tbody");
    this.budgetCard = h("section", { class: "card", id: "budgets", hidden: true }, h("div", { class: "card-head" }, h("h2", {}, "Budgets")),
      h("div", { class: "scroll" }, h("table", { class: "cards short" }, h("thead", {}, h("tr", {}, ["Route", "Used", "Waiting", "Next attempt"].map((name) => h("th", { scope: "col" }, name)))), this.budgets)));
    this.feed = h("ul", { class: "feed", id: "feed" });
    const head = ["Source", "Deliveries", "New", "Duplicates", "Turned away", "Dead", "Last", ""];
    this.full = h("div", { class: "stack" },
      h("div", { class: "grid tiles" }, this.tiles.saved.node, this.tiles.deliveries.node, this.tiles.events.node, this.tiles.duplicates.node),
      h("div", { class: "grid charts" },
        h("div", { class: "card" }, this.deliveries.node),
        h("div", { class: "card" }, this.same.node),
        h("div", { class: "card" }, this.failures.node)),
      h("div", { class: "grid two" },
        h("div", {},
          h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Sources"), h("a", { class: "small", href: "/sources" }, "Configuration")),
            h("div", { class: "scroll" }, h("table", { class: "cards short" }, h("thead", {}, h("tr", {}, head.map((name, i) => h("th", { scope: "col", class: i && i < 7 ? "num" : "" }, name)))), this.sources))),
          this.budgetCard,
          h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Store")), h("div", { class: "card-body" }, this.store))),
        h("div", {}, h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Recent activity"), h("a", { class: "small", href: "/events" }, "All events")), this.feed))));
    this.node = h("div", { class: "stack" }, this.needs, this.start, this.full);
  }

  draw(seen) {
    this.full.hidden = this.isEmpty;
    this.start.hidden = !this.isEmpty;
    if (this.isEmpty && !this.start.childElementCount) fill(this.start, begin(this.state.sources));
    this.drawNeeds(seen);
    this.drawTiles(seen);
    this.drawWhose(seen);
    const { series } = seen;
    const verdicts = VERDICTS.filter(({ name }) => name !== "unavailable" || seen.deliveries[name]);
    this.deliveries.draw(series.at.map((at, i) => ({ at, values: verdicts.map(({ name }) => series[name][i]) })), verdicts);
    this.failures.draw(series.at.map((at, i) => ({ at, values: [series.failed[i], series.dead[i]] })));
    this.drawSame(seen);
    this.drawSources(seen);
    this.drawBudgets(seen);
    this.drawStore(seen);
  }

  /** Which node the numbers are from: each node counts its own deliveries. */
  drawWhose({ node, started_at: started }) {
    this.whose.hidden = this.isEmpty;
    if (started === this.startedAt) return;
    this.startedAt = started;
    fill(this.whose, "Deliveries and charts are from node ", h("code", {}, node), ", started ", when(started), ". Events and dead letters are from the whole store.");
  }

  drawNeeds({ events, oldest_waiting: oldest, store, clock, orphaned, sweep }) {
    const notes = [];
    const jump = clock.waiting;
    if (jump) notes.push(h("div", { class: "notice warn", id: "clock" }, icon("events"), h("span", {}, h("b", {}, `The clock jumped forward by ${length(jump.jump * 1000)}. `), `Expiry is paused since ${full(Date.parse(jump.since))} and resumes in ${length(jump.left * 1000)}. Then ${many(jump.would_forget, "event")} will be forgotten. If the clock is right, run `, h("code", {}, "hookonce forget --now"), ".")));
    if (!store.ok) notes.push(h("div", { class: "notice bad", role: "alert" }, icon("dead"), h("span", {}, h("b", {}, "The store does not respond. "), store.why ?? "", " Senders get 503 and will retry.")));
    if (events.dead) notes.push(h("div", { class: "notice bad", id: "needs" }, icon("dead"), h("span", {}, h("b", {}, many(events.dead, "failed event")), events.dead === 1 ? " needs attention" : " need attention"), h("div", { class: "actions" }, h("a", { class: "button", href: "/dead" }, "Review"))));
    if (oldest && Date.now() - Date.parse(oldest.received_at) > 60_000) notes.push(h("div", { class: "notice warn" }, icon("events"), h("span", {}, `${many(events.waiting, "event")} ${events.waiting === 1 ? "is" : "are"} waiting; the oldest, `, eventLink(oldest.event), ", was received ", when(oldest.received_at))));
    if (isFailing(sweep)) notes.push(h("div", { class: "notice warn", id: "sweep-failed" }, icon("dead"), h("span", {}, h("b", {}, "The sweep failed "), when(sweep.failed.at), `: ${sweep.failed.why} Nothing is lost; the store grows until a sweep succeeds.`)));
    if (orphaned.length) notes.push(h("div", { class: "notice warn", id: "orphaned" }, icon("events"), h("span", {}, orphanedWords(orphaned))));
    const key = JSON.stringify([events.dead, events.waiting, oldest?.event, store.ok, jump, orphaned, isFailing(sweep) && sweep.failed]);
    if (key !== this.needsKey) fill(this.needs, notes);
    this.needs.hidden = !notes.length;
    this.needsKey = key;
  }

  drawTiles({ deliveries, duplicates, events, ended, saved, window }) {
    const { tiles } = this;
    const total = sum(deliveries);
    // The store records duplicates a little later than this node counts them.
    const kept = Math.max(saved.kept ?? 0, saved.window);
    say(tiles.saved.value, `${count(kept)} ${kept === 1 ? "run" : "runs"}`);
    say(tiles.saved.hint, kept !== saved.window ? `duplicates that did not run · ${count(saved.window)} ${WINDOW_WORDS[window]}` : `duplicates that did not run, ${WINDOW_WORDS[window]}`);
    say(tiles.deliveries.value, count(total));
    say(tiles.deliveries.hint, WINDOW_WORDS[window]);
    fill(tiles.deliveries.parts, split(VERDICTS.map(({ name, tone }) => ({ value: deliveries[name], tone }))));
    say(tiles.events.value, count(deliveries.accepted));
    say(tiles.events.hint, `${count(ended.done)} done, ${count(ended.dead)} dead · ${count(events.running)} running, ${count(events.waiting)} waiting now`);
    say(tiles.duplicates.value, count(deliveries.duplicate + deliveries.stale));
    say(tiles.duplicates.hint, total ? `${percent(deliveries.duplicate + deliveries.stale, total)} of all deliveries` : "none yet");
    fill(tiles.duplicates.parts, split(Object.keys(duplicates).sort().map((same, i) => ({ value: duplicates[same], tone: TONES[i % TONES.length] }))));
  }

  /** Duplicates by identity, in alphabetical order, so that each keeps its colour. */
  drawSame({ series }) {
    const words = Object.keys(series.same).sort();
    const shown = words.map((same, i) => ({ name: sameShort(same), tone: TONES[i % TONES.length] }));
    this.same.draw(series.at.map((at, i) => ({ at, values: words.map((same) => series.same[same][i]) })), shown);
  }

  drawSources({ sources }) {
    fill(this.sources, sources.map((of) => {
      const { deliveries } = of;
      const away = deliveries.refused + deliveries.ignored;
      const cell = (value, label, tone = "") => h("td", { class: `num ${value ? tone : "faint"}`, data: { label } }, count(value));
      return h("tr", { class: "go", onclick: (click) => click.target.closest("a") || click.currentTarget.querySelector("a").click() },
        h("td", { class: "wide" }, h("a", { href: `/events?source=${encodeURIComponent(of.source)}` }, h("b", {}, of.source))),
        cell(sum(deliveries), "deliveries"), cell(deliveries.accepted, "new"), cell(deliveries.duplicate + deliveries.stale, "duplicates"), cell(away, "turned away"), cell(of.dead, "dead", "is-bad"),
        h("td", { class: "tight num" }, of.last_at ? when(of.last_at) : h("span", { class: "faint" }, "never")),
        h("td", { class: "tight last" }, of.series ? sparkline(of.series, { tone: "accepted", label: `deliveries of ${of.source} over time` }) : null));
    }));
  }

  /** What each route has used of its budget, and when it has room again. */
  drawBudgets({ budgets }) {
    this.budgetCard.hidden = !budgets.length;
    fill(this.budgets, budgets.map((of) => {
      const waits = `/events?state=waiting&source=${encodeURIComponent(of.source)}&route=${encodeURIComponent(of.route)}`;
      const full = of.used !== null && of.used >= of.runs;
      return h("tr", { data: { route: of.route } },
        h("td", { class: "wide" }, h("b", {}, of.source), h("span", { class: "faint" }, " / ", of.route), h("div", { class: "small faint" }, budgetWords(of), of.exceeded === "drop" ? ", then dropped" : "")),
        h("td", { class: `tight ${full ? "is-bad" : ""}`, data: { label: "used" } }, of.used === null ? "by group" : `${count(of.used)} of ${count(of.runs)}`),
        h("td", { class: "tight", data: { label: "waiting" } }, of.waiting ? h("a", { href: waits }, count(of.waiting)) : h("span", { class: "faint" }, "none")),
        h("td", { class: "tight last", data: { label: "next attempt" } }, of.next_at ? when(of.next_at) : "now"));
    }));
  }

  drawStore({ store, events, since, clock, sweep }) {
    const fact = (name, ...value) => [h("dt", {}, name), h("dd", {}, value)];
    const ms = (value) => (value === null ? "–" : `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`);
    const all = ["waiting", "running", "done", "dead"].map((word) => `${count(events[word])}${events.capped ? "+" : ""} ${word}`).join(", ");
    fill(this.store,
      fact("health", store.ok ? h("span", { class: "chip state-done" }, h("i"), `${store.kind} responds`) : h("span", { class: "chip state-dead" }, h("i"), store.why ?? "no response")),
      fact("claim latency", `p50 ${ms(store.claim_p50)}, p99 ${ms(store.claim_p99)}`),
      fact("events kept", all),
      fact("clock", Math.abs(clock.ahead) > 60 ? `${length(Math.abs(clock.ahead) * 1000)} ${clock.ahead > 0 ? "ahead of" : "behind"} this machine's` : "agrees with this machine's", clock.waiting ? "; expiry is paused" : ""),
      fact("sweep", sweepWords(sweep)),
      fact("counters", "restored from the last ", h("time", { datetime: since, title: full(Date.parse(since)) }, hours(Date.now() - Date.parse(since)))));
  }
}

/** Whether the last sweep failed. */
function isFailing({ failed, finished_at: finished }) {
  return Boolean(failed && (!finished || failed.at > finished));
}

/** What this node's sweep has deleted, and when. */
function sweepWords({ events, bodies, failures, finished_at: finished, freed }) {
  const some = (of) => `${many(of.events, "event")} and ${of.bodies === 1 ? "1 body" : `${count(of.bodies)} bodies`}`;
  return [
    finished ? ["last run ", when(finished)] : "has not run yet",
    freed ? ["; deleted ", some(freed), " ", when(freed.at), `, and ${some({ events, bodies })} since the node started`] : "; nothing to delete since the node started",
    failures ? h("span", { class: "is-bad" }, `; ${many(failures, "sweep")} failed`) : null,
  ];
}

/** Events of sources that no node has: how many, their retention, and what to do. */
function orphanedWords(orphaned) {
  const total = orphaned.reduce((all, { events }) => all + events, 0);
  const kept = (keep) => (keep === null ? "kept until someone forgets them" : keep === "forever" ? "kept forever" : `kept for ${keep}`);
  const each = orphaned.flatMap(({ source, events, capped, keep }, i) => [
    i ? ", " : "", h("a", { href: `/events?source=${encodeURIComponent(source)}` }, source), ` (${count(events)}${capped ? "+" : ""}, ${kept(keep)})`,
  ]);
  return [h("b", {}, `${many(total, "event")} of ${orphaned.length === 1 ? "a source" : "sources"} that no node has: `), each, ". ", h("code", {}, "hookonce forget --source NAME"), " ends them."];
}

/** The first visit: nothing has arrived. */
function begin(all) {
  const sources = all.filter(({ poll }) => !poll);
  if (all.length && !sources.length) return h("section", { class: "card empty", id: "empty" }, h("h2", {}, "Nothing has been seen yet"), h("p", {}, "Each source polls a registry. What its tag points to shows up here."));
  const one = sources.find(({ preset }) => preset) ?? sources[0];
  const command = `hookonce send --sample${sources.length > 1 ? ` --source ${one.name}` : ""}`;
  return h("section", { class: "card", id: "empty" }, h("ol", { class: "start" },
    h("li", {}, h("h2", {}, "Try it with a sample"), h("p", {}, "Signs and sends a test delivery to this node. It shows up here at once."), h("div", { class: "command" }, h("code", {}, command), copier(command, "Copy the command"))),
    h("li", {}, h("h2", {}, "Give the sender its URL"), h("p", {}, sources.length ? "Each source has its own path. Use the address at which the sender can reach this machine." : "The config has no source yet."), sources.map((source) => h("div", { class: "start-url" }, h("div", { class: "small soft" }, source.name, " · ", source.signed_by), address(source)))),
    h("li", {}, h("h2", {}, "Something is missing?"), h("p", {}, "Refused and ignored deliveries are listed with their reason, and Explain shows each step for a saved delivery."), h("div", { class: "actions" }, h("a", { class: "button", href: "/turned-away" }, "Turned away"), h("a", { class: "button", href: "/explain" }, "Explain a delivery")))));
}

/** Recent activity, newest first. */
class Feed {
  constructor(node) {
    this.node = node;
    this.waiting = [];
    this.planned = false;
  }

  /** The initial content: the newest events, and the last deliveries that made no event. */
  async begin(signal) {
    const [{ events }, { deliveries }] = await Promise.all([api.events({ limit: 12 }, signal), api.deliveries({ local: "1", limit: 12 }, signal)]);
    if (this.node.childElementCount) return;
    const lines = [
      ...events.map((event) => [event.ended_at ?? event.received_at, () => this.line(event.ended_at ?? event.received_at, chip(event), event, what(event))]),
      ...deliveries.map((seen) => [seen.at, () => this.heard(seen)]),
    ].sort(([a], [b]) => (a < b ? 1 : -1)).slice(0, FEED_MAX);
    fill(this.node, lines.map(([, line]) => line()));
    if (!lines.length) fill(this.node, h("li", { class: "faint" }, "Nothing yet"));
  }

  delivery(seen) {
    if (seen.verdict !== "accepted") this.push(() => this.heard(seen));
  }

  heard(seen) {
    const [short, long] = because(seen);
    const why = seen.event ? sameWords(seen.same) || "stale" : long ?? short;
    return this.line(seen.at, verdictChip(seen.verdict), { event: seen.event, source: seen.source ?? seen.path }, why);
  }

  state(event) {
    this.push(() => this.line(new Date().toISOString(), chip(event), event, what(event)));
  }

  line(at, mark, { event, source }, text) {
    return h("li", {}, when(at, { form: "clock" }), mark, h("span", { class: "where" }, h("span", { class: "cut" }, source ?? ""), event ? eventLink(event) : null), text ? h("span", { class: "what" }, text) : null);
  }

  /** Draws several entries at once. */
  push(make) {
    this.waiting.push(make);
    if (this.waiting.length > FEED_MAX) this.waiting.shift();
    if (this.planned) return;
    this.planned = true;
    setTimeout(() => {
      this.planned = false;
      const lines = this.waiting.splice(0).map((one) => one()).reverse();
      for (const one of lines) one.classList.add("fresh");
      this.node.querySelector("li.faint")?.remove();
      this.node.prepend(...lines);
      while (this.node.childElementCount > FEED_MAX) this.node.lastElementChild.remove();
    }, 150);
  }
}

const what = (event) => Object.entries(event.fields).slice(0, 2).map(([name, value]) => `${name} ${value}`).join(" · ");
