// Problems of a campaign as cells that fill, a sign and a colour each: thousands fit on a screen.

import { colour } from "../lib/theme.js";
import { Chart } from "./chart.js";

/**
 * @typedef {{token: string, sign: string, text: string, label?: string, href?: string, fill: number}} CellOf fill is 0 to 1; the label is shown where cells are large
 * @typedef {{title: string, sentence: string, cells: number, cell: (place: number) => CellOf, rows: () => {head: string[], rows: any[][]}}} Cells
 */
/** Cells at most, and the pixels of one. */
const SIZES = [[60, 56], [150, 40], [600, 26], [2500, 16]];
const LABELLED = 40;

customElements.define("chart-cells", class extends Chart {
  /** @returns {Cells} */
  get #spec() { return this.data; }
  get #size() { return SIZES.find(([most]) => this.#spec.cells <= most)?.[1] ?? 9; }
  count() { return this.#spec.cells; }
  table() { return this.#spec.rows(); }

  /** @param {number} width */
  #across(width) { return Math.max(1, Math.floor(width / this.#size)); }
  /** @param {number} width */
  height(width) { return Math.ceil(this.#spec.cells / this.#across(width)) * this.#size + 8; }

  /** @param {number} place */
  point(place) {
    const across = this.#across(this.plotWidth);
    const { text, href } = this.#spec.cell(place);
    return { x: ((place % across) + 0.5) * this.#size, y: (Math.floor(place / across) + 0.5) * this.#size, text, href };
  }

  /** @param {number} x @param {number} y */
  hit(x, y) {
    const across = this.#across(this.plotWidth);
    const place = Math.floor(y / this.#size) * across + Math.floor(x / this.#size);
    return x >= 0 && x < across * this.#size && place >= 0 && place < this.#spec.cells ? place : -1;
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} width @param {number} height */
  draw(pen, width, height) {
    const size = this.#size;
    const across = this.#across(width);
    pen.clearRect(0, 0, width, height);
    const labelled = size >= LABELLED;
    const font = (/** @type {number} */ high) => `${high}px system-ui, "DejaVu Sans", sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let place = 0; place < this.#spec.cells; place++) {
      const { token, sign, label, fill } = this.#spec.cell(place);
      const [x, y] = [(place % across) * size, Math.floor(place / across) * size];
      pen.fillStyle = colour("faint");
      pen.fillRect(x + 1, y + 1, size - 2, size - 2);
      pen.fillStyle = colour(token);
      pen.globalAlpha = labelled ? 0.24 : 0.9;
      pen.fillRect(x + 1, y + 1 + (size - 2) * (1 - fill), size - 2, (size - 2) * fill);
      pen.globalAlpha = 1;
      if (size < 14 || !sign) continue;
      pen.fillStyle = colour(labelled ? token : fill > 0.6 ? "card" : "ink");
      pen.font = font(labelled ? 13 : Math.round(size * 0.46));
      pen.fillText(sign, x + size / 2, y + size / 2 + (labelled && label ? -7 : 1));
      pen.font = font(11);
      pen.fillStyle = colour("ink");
      if (labelled && label) pen.fillText(label, x + size / 2, y + size / 2 + 10);
    }
  }
});
