// One change at a time: a row a knob, a mark a value, at what it would cost; measured ones filled, expected ones hollow.

import { colour } from "../lib/theme.js";
import { FONT, line, mark } from "./axis.js";
import { Chart } from "./chart.js";
import { scale } from "./scale.js";
import { clipped } from "./strips.js";

/**
 * @typedef {{value: string | number, ratio: number, low: number, high: number, measured: boolean}} Change
 * @typedef {{title: string, sentence: string, knobs: {name: string, share: string, changes: Change[]}[]}} Changes
 */
const ROW = 22;
const SHARE = 46;
const COSTS = [1, 0.9, 0.8, 0.96, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3];

customElements.define("chart-changes", class extends Chart {
  /** @returns {Changes} */
  get #spec() { return this.data; }
  height() { return 24 + this.#spec.knobs.length * ROW + 28; }
  get #all() { return this.#spec.knobs.flatMap((knob, row) => knob.changes.map((change) => ({ knob, row, change }))); }
  count() { return this.#all.length; }
  table() {
    return { head: ["change", "time", "from", "to", "source"], rows: this.#all.map(({ knob, change }) => [`${knob.name}=${change.value}`,
      `${change.ratio.toFixed(3)}×`, change.low.toFixed(3), change.high.toFixed(3), change.measured ? "measured" : "expected"]) };
  }

  /** @param {number} width */
  #left(width) { return Math.min(240, width * 0.46); }

  /** @param {number} width */
  #x(width) {
    // Square roots of the cost above a floor: small costs are what one argues about.
    const ratios = this.#all.map(({ change }) => change.ratio);
    const most = Math.min(4, Math.max(1.1, ...ratios));
    const bend = (/** @type {number} */ ratio) => Math.sign(ratio - 1) * Math.sqrt(Math.abs(ratio - 1));
    const least = bend(Math.max(0.75, Math.min(0.96, ...ratios)));
    const to = scale([least - 0.02, bend(most)], [this.#left(width), width - 22]);
    return (/** @type {number} */ ratio) => to(Math.max(least, Math.min(bend(most), bend(ratio))));
  }

  /** @param {number} place */
  point(place) {
    const { knob, row, change } = this.#all[place];
    const x = this.#x(this.plotWidth);
    const percent = (/** @type {number} */ ratio) => `${ratio >= 1 ? "+" : "−"}${(Math.abs(ratio - 1) * 100).toFixed(1)} %`;
    return { x: x(change.ratio), y: 24 + ROW * (row + 0.5), text: `${knob.name}=${change.value}: ${percent(change.ratio)}${
      change.measured ? ", measured" : `, expected (${percent(change.low)} to ${percent(change.high)})`}` };
  }

  /** @param {number} x @param {number} y */
  hit(x, y) {
    let [best, least] = [-1, 14 * 14];
    this.#all.forEach((_, place) => {
      const point = this.point(place);
      const away = (point.x - x) ** 2 + (point.y - y) ** 2;
      if (away < least) [best, least] = [place, away];
    });
    return best;
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} width @param {number} height */
  draw(pen, width, height) {
    const x = this.#x(width);
    pen.clearRect(0, 0, width, height);
    pen.font = FONT;
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    pen.strokeStyle = colour("line");
    pen.fillStyle = colour("soft");
    const taken = /** @type {number[]} */ ([]);
    for (const cost of COSTS) {
      const at = Math.round(x(cost)) + 0.5;
      if (at > width - 12 || taken.some((other) => Math.abs(other - at) < 48)) continue;
      taken.push(at);
      pen.strokeStyle = colour(cost === 1 ? "soft" : "line");
      line(pen, at, 18, at, height - 24);
      pen.fillText(cost === 1 ? "same" : `${cost > 1 ? "+" : "−"}${Math.round(Math.abs(cost - 1) * 100)} %`, at, height - 14);
    }
    const left = this.#left(width);
    pen.textAlign = "right";
    const column = width > 420 ? SHARE : 0;
    if (column) pen.fillText("share", left - 12, 10);
    this.#spec.knobs.forEach((knob, row) => {
      const y = 24 + ROW * (row + 0.5);
      pen.textAlign = "right";
      pen.fillStyle = colour("soft");
      if (column) pen.fillText(knob.share, left - 12, y);
      pen.fillStyle = colour("ink");
      pen.fillText(clipped(pen, knob.name, left - column - 16), left - column - 10, y);
      for (const change of knob.changes) {
        pen.strokeStyle = pen.fillStyle = colour(change.ratio < 1 ? "gain" : "mark");
        pen.lineWidth = 1;
        line(pen, x(change.low), y, x(change.high), y);
        pen.lineWidth = 1.6;
        mark(pen, change.measured ? "dot" : "ring", x(change.ratio), y, 4.2);
      }
    });
  }
});
