// Points, up to millions: stamped into a buffer of pixels, because a path or a rectangle a point is ten times slower.

import { colour } from "../lib/theme.js";
import { axes, mark, polylines } from "./axis.js";
import { brush } from "./brush.js";
import { Chart } from "./chart.js";
import { Near } from "./near.js";
import { extent, scale } from "./scale.js";
import { stamp } from "./stamp.js";

/**
 * @typedef {object} Scatter
 * @property {string} title @property {string} sentence
 * @property {ArrayLike<number>} x @property {ArrayLike<number>} y not finite: left out
 * @property {ArrayLike<number>} [group] of each point, an index into `groups`
 * @property {{token: string, shape: any, name: string}[]} groups
 * @property {ArrayLike<number>} [faint] 1 for points that are outside the selection
 * @property {{x: string, y: string, logX?: boolean, logY?: boolean, formatX?: any, formatY?: any}} axes
 * @property {{x: number[], y: number[], token: string, name: string}[]} [lines]
 * @property {(place: number) => string} text
 * @property {(place: number) => string | undefined} [href]
 * @property {(box: [number, number, number, number] | null) => void} [brushed] of two x and two y
 * @property {() => {head: string[], rows: any[][]}} rows
 * @property {number} [tall] @property {{x?: number, y?: number}} [holds] a value that the axis reaches in any case
 */
const SHAPED = 3000;

customElements.define("chart-scatter", class extends Chart {
  #at = { x: new Float32Array(), y: new Float32Array() };
  /** @type {Near | null} made at the first move of the pointer */
  #near = null;
  /** Points that have a place. */
  #order = new Uint32Array();
  /** Ends of the data, kept while the arrays are the same: `x` and `y` of a selection are those of all points. */
  #ends = { x: /** @type {any} */ (null), y: /** @type {any} */ (null), spans: /** @type {any} */ ({}) };
  /** The scales for which points were placed. */
  #placed = "";
  /** Milliseconds that the last drawing took. */
  took = 0;
  /** @type {any} */
  scales = null;

  /** @returns {Scatter} */
  get #spec() { return this.data; }
  height() { return this.#spec.tall ?? 320; }

  /** @param {HTMLElement} plot @param {number} width */
  picture(plot, width) {
    super.picture(plot, width);
    brush(plot, () => (this.#spec.brushed ? { scales: this.scales, chosen: this.#spec.brushed } : null));
  }

  table() { return this.#spec.rows(); }
  count() { return this.#order.length; }
  get walkable() { return this.#spec.x.length > 0; }

  /** @param {number} place */
  point(place) {
    const point = this.#order[place];
    return { x: this.#at.x[point], y: this.#at.y[point], text: this.#spec.text(point), href: this.#spec.href?.(point) };
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} width @param {number} height */
  draw(pen, width, height) {
    const began = performance.now();
    const spec = this.#spec;
    const box = { left: 52, top: 26, right: width - 12, bottom: height - 42 };
    const lines = spec.lines ?? [];
    if (this.#ends.x !== spec.x || this.#ends.y !== spec.y) {
      this.#ends = { x: spec.x, y: spec.y, spans: { x: extent(spec.x, spec.axes.logX), y: extent(spec.y, spec.axes.logY) } };
      this.#placed = "";
    }
    const span = (/** @type {"x" | "y"} */ name, /** @type {boolean | undefined} */ log) => {
      const ends = [this.#ends.spans[name], ...lines.filter((line) => line[name].length).map((line) => extent(line[name], log, 0))];
      const [low, high] = name === "x" ? ends[0] : [ends[0][0], Math.max(...ends.map((end) => end[1]))];
      const held = spec.holds?.[name];
      return /** @type {[number, number]} */ (held === undefined ? [low, high] : [Math.min(low, held * 0.98), Math.max(high, held * 1.02)]);
    };
    const x = scale(span("x", spec.axes.logX), [box.left, box.right], spec.axes.logX);
    const y = scale(span("y", spec.axes.logY), [box.bottom, box.top], spec.axes.logY);
    this.scales = { x, y, box };
    pen.clearRect(0, 0, width, height);
    axes(pen, box, x, y, spec.axes);
    const placed = [...x.domain, ...y.domain, width, height].join();
    if (placed !== this.#placed) this.#locate(x, y);
    this.#placed = placed;
    polylines(pen, box, x, y, lines);
    if (this.#order.length > SHAPED) stamp(pen, { x: this.#at.x, y: this.#at.y, order: this.#order, ...this.#marks() }, width, height);
    else this.#shape(pen);
    polylines(pen, box, x, y, lines, true);
    this.took = performance.now() - began;
  }

  /** @param {import("./scale.js").Scale} x @param {import("./scale.js").Scale} y */
  #locate(x, y) {
    const spec = this.#spec;
    const total = spec.x.length;
    if (this.#at.x.length !== total) this.#at = { x: new Float32Array(total), y: new Float32Array(total) };
    const order = new Uint32Array(total);
    let held = 0;
    const [bendX, bendY] = [x.log ? Math.log : Number, y.log ? Math.log : Number];
    const [x0, y0] = [bendX(x.domain[0]), bendY(y.domain[0])];
    const [px, py] = [x(x.domain[0]), y(y.domain[0])];
    const [dx, dy] = [(x(x.domain[1]) - px) / (bendX(x.domain[1]) - x0), (y(y.domain[1]) - py) / (bendY(y.domain[1]) - y0)];
    for (let place = 0; place < total; place++) {
      const across = (this.#at.x[place] = px + (bendX(spec.x[place]) - x0) * dx);
      const up = (this.#at.y[place] = py + (bendY(spec.y[place]) - y0) * dy);
      if (across - across === 0 && up - up === 0) order[held++] = place;
    }
    this.#order = order.subarray(0, held);
    this.#near = null;
  }

  #marks() {
    const { group, groups, faint } = this.#spec;
    return { group, groups, faint };
  }

  /** @param {CanvasRenderingContext2D} pen */
  #shape(pen) {
    const { group, groups, faint } = this.#spec;
    const size = this.#order.length > 600 ? 2.6 : 3.8;
    for (const pass of [1, 0]) {
      pen.globalAlpha = pass ? 0.16 : 0.88;
      groups.forEach(({ token, shape }, which) => {
        pen.fillStyle = pen.strokeStyle = colour(token);
        for (const place of this.#order) {
          if ((group?.[place] ?? 0) === which && (faint?.[place] ?? 0) === pass) mark(pen, shape, this.#at.x[place], this.#at.y[place], size);
        }
      });
    }
    pen.globalAlpha = 1;
  }

  /** @param {number} x @param {number} y */
  hit(x, y) {
    this.#near ??= new Near(this.#at.x, this.#at.y, this.#order);
    return this.#near.at(x, y);
  }
});
