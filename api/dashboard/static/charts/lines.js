// Lines and marks over one axis: clocks, ladders, drift. A band of its own below where units differ.

import { number } from "../lib/format.js";
import { colour } from "../lib/theme.js";
import { html, nothing } from "../lib/view.js";
import { axes, line, mark } from "./axis.js";
import { Chart } from "./chart.js";
import { extent, scale, short } from "./scale.js";

/**
 * @typedef {{name: string, token: string, y: (number | null)[], kind: "line" | "marks", shape?: any, unit?: string, below?: boolean, dash?: number[]}} Series
 * @typedef {object} Lines
 * @property {string} title @property {string} sentence
 * @property {number[]} x ascending @property {string} xName
 * @property {Series[]} series @property {string} yName
 * @property {boolean} [logX] @property {boolean} [logY]
 * @property {(value: number) => string} [formatX] @property {(place: number) => string | undefined} [href]
 * @property {(place: number) => string} [text] @property {number} [tall]
 */
customElements.define("chart-lines", class extends Chart {
  /** @type {any} */
  #scales = null;

  /** @returns {Lines} */
  get #spec() { return this.data; }
  height() { return this.#spec.tall ?? 260; }
  count() { return this.#spec.x.length; }
  legend() { return this.#spec.series.length < 2 || this.#spec.series.some((entry) => entry.below) ? nothing : key(this.#spec.series); }

  table() {
    const { x, xName, series } = this.#spec;
    return { head: [xName, ...series.map((entry) => entry.name + (entry.unit ? `, ${entry.unit}` : ""))],
      rows: x.map((value, place) => [this.#formatX(value), ...series.map((entry) => number(entry.y[place]))]) };
  }

  /** @param {number} value */
  #formatX(value) { return (this.#spec.formatX ?? short)(value); }

  /** @param {number} place */
  point(place) {
    const { x, xName, series, text, href } = this.#spec;
    const held = series.filter((entry) => typeof entry.y[place] === "number");
    if (!held.length || !this.#scales) return null;
    const words = held.map((entry) => `${entry.name} ${number(entry.y[place])}${entry.unit ? ` ${entry.unit}` : ""}`);
    return { x: this.#scales.x(x[place]), y: this.#scales[held[0].below ? "lower" : "upper"](held[0].y[place]), href: href?.(place),
      text: text?.(place) ?? `${xName} ${this.#formatX(x[place])}: ${words.join(", ")}` };
  }

  /** @param {number} x */
  hit(x) {
    if (!this.#scales) return -1;
    let [best, least] = [-1, Infinity];
    this.#spec.x.forEach((value, place) => {
      const away = Math.abs(this.#scales.x(value) - x);
      if (away < least) [best, least] = [place, away];
    });
    return best;
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} width @param {number} height */
  draw(pen, width, height) {
    const { x, xName, yName, series, logX, logY } = this.#spec;
    const box = { left: 52, top: 26, right: width - 14, bottom: height - 42 };
    const belows = series.filter((entry) => entry.below);
    const middle = belows.length ? (box.top + box.bottom) / 2 : box.bottom;
    const values = (/** @type {boolean} */ below) => series.filter((entry) => !!entry.below === below).flatMap((entry) => entry.y);
    const over = scale(extent(x, logX, 0.02), [box.left, box.right], logX);
    const upper = scale(extent(values(false), logY), [middle - (belows.length ? 14 : 0), box.top], logY);
    const lower = scale(extent(values(true)), [box.bottom, middle + 20]);
    this.#scales = { x: over, upper, lower };
    pen.clearRect(0, 0, width, height);
    const names = { x: xName, y: yName, formatX: (/** @type {number} */ value) => this.#formatX(value) };
    if (belows.length) {
      axes(pen, { ...box, bottom: middle - 14 }, over, upper, { y: yName, bare: true });
      pen.textBaseline = "top";
      pen.fillText(belows.map((entry) => `${entry.name}, ${entry.unit}`).join(), 0, middle - 4);
      axes(pen, { ...box, top: middle + 20 }, over, lower, { ...names, y: "" });
    } else axes(pen, box, over, upper, names);
    for (const entry of series) draw(pen, entry, x, over, entry.below ? lower : upper);
    pen.setLineDash([]);
  }
});

/** @param {CanvasRenderingContext2D} pen @param {Series} entry @param {number[]} x @param {any} over @param {any} up */
function draw(pen, entry, x, over, up) {
  pen.strokeStyle = pen.fillStyle = colour(entry.token);
  pen.lineWidth = 1.6;
  pen.setLineDash(entry.dash ?? []);
  /** @type {number | null} */
  let before = null;
  x.forEach((value, place) => {
    const at = entry.y[place];
    if (at === null || at === undefined) return;
    if (entry.kind === "marks") mark(pen, entry.shape ?? "dot", over(value), up(at), 4.2);
    else if (before !== null) line(pen, over(x[before]), up(entry.y[before]), over(value), up(at));
    before = place;
  });
}

const GLYPHS = /** @type {Record<string, string>} */ ({ faster: "▲", slower: "▼", tied: "◆", ring: "○", square: "■" });

/** @param {Series[]} series */
const key = (series) => html`<span class="key">${series.map((entry) => html`<span>${entry.kind === "marks"
  ? html`<b class="glyph" .style=${`--swatch:var(--${entry.token})`}>${GLYPHS[entry.shape] ?? "●"}</b>`
  : html`<i class="swatch ${entry.dash ? "dashed" : ""}" .style=${`--swatch:var(--${entry.token})`}></i>`}${entry.name}</span>`)}</span>`;
