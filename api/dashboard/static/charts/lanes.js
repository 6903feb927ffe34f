// Lanes over time: one a worker, a span a round; lost and withdrawn rounds are hatched.

import { clock } from "../lib/format.js";
import { colour } from "../lib/theme.js";
import { FONT, line } from "./axis.js";
import { Chart } from "./chart.js";
import { clipped } from "./strips.js";

/**
 * @typedef {{from: number, to: number, kind: "done" | "running" | "failed" | "lost" | "withdrawn", busy: number, text: string, href?: string}} Span seconds since 1970
 * @typedef {{title: string, sentence: string, from: number, to: number, lanes: {name: string, gone: boolean, spans: Span[]}[]}} Lanes
 */
const ROW = 30;
const TOKENS = { done: "mark", running: "gain", failed: "loss", lost: "loss", withdrawn: "soft" };
const STEPS = [10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 86400, 604800];

customElements.define("chart-lanes", class extends Chart {
  /** @returns {Lanes} */
  get #spec() { return this.data; }
  height() { return 8 + this.#spec.lanes.length * ROW + 26; }
  get #all() { return this.#spec.lanes.flatMap((lane, row) => lane.spans.map((span) => ({ lane, row, span }))); }
  count() { return this.#all.length; }
  table() {
    return { head: ["worker", "round", "seconds", "began, UTC"], rows: this.#all.map(({ lane, span }) => [lane.name, span.text, Math.round((span.to - span.from) * 10) / 10,
      clock(span.from)]) };
  }

  /** @param {number} width */
  #x(width) {
    const { from, to } = this.#spec;
    const left = Math.min(150, width * 0.3);
    return { left, at: (/** @type {number} */ second) => left + (Math.max(from, Math.min(to, second)) - from) / (to - from || 1) * (width - left - 8) };
  }

  /** @param {number} place */
  point(place) {
    const { row, span } = this.#all[place];
    const { at } = this.#x(this.plotWidth);
    return { x: (at(span.from) + at(span.to)) / 2, y: 8 + ROW * (row + 0.5), text: span.text, href: span.href };
  }

  /** @param {number} x @param {number} y */
  hit(x, y) {
    const row = Math.floor((y - 8) / ROW);
    const { at } = this.#x(this.plotWidth);
    return this.#all.findIndex((entry) => entry.row === row && x >= at(entry.span.from) - 2 && x <= at(entry.span.to) + 2);
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} width @param {number} height */
  draw(pen, width, height) {
    const { from, to, lanes } = this.#spec;
    const { left, at } = this.#x(width);
    pen.clearRect(0, 0, width, height);
    pen.font = FONT;
    pen.textBaseline = "middle";
    const step = STEPS.find((seconds) => (to - from) / seconds <= Math.max(2, (width - left) / 90)) ?? 604800;
    pen.strokeStyle = colour("line");
    pen.fillStyle = colour("soft");
    pen.textAlign = "center";
    for (let second = Math.ceil(from / step) * step; second <= to; second += step) {
      line(pen, Math.round(at(second)) + 0.5, 4, Math.round(at(second)) + 0.5, height - 22);
      if (second + step > to) pen.textAlign = "right";
      pen.fillText(clock(second).slice(step >= 86400 ? 5 : 11, step >= 86400 ? 10 : step < 60 ? 19 : 16), at(second), height - 11);
    }
    lanes.forEach((lane, row) => {
      const y = 8 + ROW * row;
      pen.textAlign = "right";
      pen.fillStyle = colour(lane.gone ? "soft" : "ink");
      pen.fillText(clipped(pen, lane.name, left - 14), left - 10, y + ROW / 2);
      pen.fillStyle = colour("faint");
      pen.fillRect(left, y + 5, width - left - 8, ROW - 10);
      for (const span of lane.spans) this.#span(pen, span, at, y + 5);
    });
  }

  /** @param {CanvasRenderingContext2D} pen @param {Span} span @param {(second: number) => number} at @param {number} y */
  #span(pen, span, at, y) {
    const [x, high] = [at(span.from), ROW - 10];
    const width = Math.max(2, at(span.to) - x - 1);
    pen.fillStyle = pen.strokeStyle = colour(TOKENS[span.kind]);
    pen.globalAlpha = 0.35;
    pen.fillRect(x, y, width, high);
    pen.globalAlpha = 1;
    if (span.kind === "done" || span.kind === "running") pen.fillRect(x, y + high * (1 - Math.min(1, span.busy)), width, high * Math.min(1, span.busy));
    else {
      pen.save();
      pen.beginPath();
      pen.rect(x, y, width, high);
      pen.clip();
      for (let over = -high; over < width; over += 6) line(pen, x + over, y + high, x + over + high, y);
      pen.restore();
    }
  }
});
