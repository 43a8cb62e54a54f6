// Charts as SVG: stacked bars over time and sparklines. Sizes follow the page; each chart has a text alternative.

import { h, s, fill } from "./dom.js";
import { hour, day, full } from "./time.js";
import { count } from "./words.js";

const HEIGHT = 148;
const LEFT = 34;
const BOTTOM = 20;
const TOP = 8;

/** A round, even number at or above this, so that the axis has whole steps. */
export function ceiling(value) {
  if (value <= 4) return 4;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10]) if (step * power >= value) return 2 * Math.ceil((step * power) / 2);
  return value;
}

const short = (value) => (value >= 10_000 ? `${Math.round(value / 1000)}k` : value >= 1000 ? `${+(value / 1000).toFixed(1)}k` : String(value));

/**
 * Stacked bars over time that can be drawn again with other numbers.
 * `series`: [{ name, tone }]; `draw(buckets, series)`: [{ at, values: [per series] }].
 */
export class Bars {
  constructor(title, series, { empty = "Nothing yet" } = {}) {
    this.series = series;
    this.title = title;
    this.empty = empty;
    this.plot = h("div", { class: "plot" });
    this.legend = h("ul", { class: "legend" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.node = h("figure", { class: "chart" }, h("figcaption", { class: "chart-head" }, h("h3", {}, title), this.legend), this.plot, this.tip);
    this.width = 0;
    new ResizeObserver(() => {
      const width = Math.round(this.plot.clientWidth);
      if (width && width !== this.width) {
        this.width = width;
        if (this.buckets) this.draw(this.buckets);
      }
    }).observe(this.plot);
  }

  draw(buckets, series = this.series) {
    this.buckets = buckets;
    this.series = series;
    const sums = this.series.map((_, i) => buckets.reduce((sum, bucket) => sum + (bucket.values[i] || 0), 0));
    const total = sums.reduce((a, b) => a + b, 0);
    fill(this.legend, this.series.map(({ name, tone }, i) =>
      h("li", { class: sums[i] ? "" : "faint" }, h("i", { class: `swatch tone-${tone}` }), name, " ", h("b", { class: "num" }, count(sums[i])))));
    if (!this.width || !buckets.length) return;
    const top = ceiling(Math.max(0, ...buckets.map((bucket) => bucket.values.reduce((a, b) => a + b, 0))));
    const inner = this.width - LEFT;
    const step = inner / buckets.length;
    const gap = step > 7 ? 2 : step > 3 ? 1 : 0;
    const scale = (HEIGHT - TOP - BOTTOM) / top;
    const base = HEIGHT - BOTTOM;
    const drawn = s("svg", { viewBox: `0 0 ${this.width} ${HEIGHT}`, width: this.width, height: HEIGHT, role: "img", "aria-label": this.inWords(sums, buckets) });
    for (const part of [0, 0.5, 1]) {
      const y = Math.round(base - part * top * scale) + 0.5;
      drawn.append(s("line", { class: part ? "grid" : "axis", x1: LEFT, x2: this.width, y1: y, y2: y }));
      if (part === 0 || total) drawn.append(s("text", { class: "tick", x: LEFT - 6, y: y + 3.5, "text-anchor": "end" }, short(part * top)));
    }
    this.ticks(drawn, buckets, step);
    buckets.forEach((bucket, i) => {
      let y = base;
      bucket.values.forEach((value, of) => {
        if (!value) return;
        const height = Math.max(1.5, value * scale);
        y -= height;
        drawn.append(s("rect", { class: `tone-${this.series[of].tone}`, x: (LEFT + i * step + gap / 2).toFixed(2), y: y.toFixed(2), width: Math.max(1, step - gap).toFixed(2), height: height.toFixed(2), rx: step > 8 ? 1.5 : 0 }));
      });
      const hover = s("rect", { class: "hover", x: LEFT + i * step, y: TOP, width: step, height: base - TOP });
      hover.addEventListener("pointerenter", () => this.show(i, LEFT + (i + 0.5) * step));
      drawn.append(hover);
    });
    drawn.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    fill(this.plot, drawn, total ? null : h("p", { class: "plot-empty" }, this.empty));
  }

  ticks(drawn, buckets, step) {
    const long = Date.parse(buckets.at(-1).at) - Date.parse(buckets[0].at) > 2 * 86_400_000;
    const wanted = Math.max(2, Math.floor((this.width - LEFT) / 90));
    const every = Math.max(1, Math.round(buckets.length / wanted));
    for (let i = 0; i < buckets.length; i += every) {
      const x = LEFT + i * step;
      if (x > this.width - 24) break;
      const at = Date.parse(buckets[i].at);
      drawn.append(s("text", { class: "tick", x, y: HEIGHT - 5 }, long ? day(at) : hour(at)));
    }
  }

  show(i, x) {
    const bucket = this.buckets[i];
    const rows = this.series.map(({ name, tone }, of) => bucket.values[of] ? h("div", {}, h("i", { class: `swatch tone-${tone}` }), name, h("b", { class: "num" }, count(bucket.values[of]))) : null).reverse();
    fill(this.tip, h("div", { class: "faint" }, full(Date.parse(bucket.at))), rows.some(Boolean) ? rows : h("div", {}, "nothing"));
    this.tip.hidden = false;
    const half = this.tip.offsetWidth / 2;
    this.tip.style.left = `${Math.min(this.width - half, Math.max(half, x))}px`;
  }

  inWords(sums, buckets) {
    const parts = this.series.map(({ name }, i) => `${name} ${sums[i]}`).join(", ");
    return `${this.title} since ${full(Date.parse(buckets[0].at))}: ${parts}`;
  }
}

/** A sparkline, small enough for a table cell. */
export function sparkline(values, { tone = "accent", label = "" } = {}) {
  const width = 60;
  const height = 22;
  const drawn = s("svg", { class: `spark tone-${tone}`, viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  if (values.length < 2) return drawn;
  const top = Math.max(1, ...values);
  const points = values.map((value, i) => [(i * width) / (values.length - 1), height - 2 - (value / top) * (height - 4)]);
  const line = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  drawn.append(s("polygon", { points: `0,${height} ${line} ${width},${height}` }), s("polyline", { points: line }));
  return drawn;
}

/** A bar divided in proportion to its parts. */
export function split(parts) {
  const total = parts.reduce((sum, { value }) => sum + value, 0) || 1;
  return h("div", { class: "split", "aria-hidden": "true" }, parts.filter(({ value }) => value > 0).map(({ value, tone }) => {
    const part = h("i", { class: `tone-${tone}` });
    part.style.flexGrow = String(value / total);
    return part;
  }));
}
