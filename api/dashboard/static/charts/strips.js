// Strips of samples: a row a candidate, every sample a tick, the median a mark, and the band within which times tie.

import { colour } from "../lib/theme.js";
import { FONT, line, mark } from "./axis.js";
import { Chart } from "./chart.js";
import { extent, scale, short, ticks } from "./scale.js";
import { fixed, number } from "../lib/format.js";
import { html, nothing } from "../lib/view.js";

/**
 * @typedef {{name: string, note: string, samples: number[], median: number, kind: "served" | "tied" | "slower" | "library", href?: string}} Strip
 * @typedef {{title: string, sentence: string, strips: Strip[], band: [number, number] | null, unit: string, keyless?: boolean}} Strips
 */
const ROW = 25;
const MARKS = /** @type {const} */ ({ served: ["gain", "faster"], tied: ["tie", "tied"], slower: ["soft", "slower"], library: ["other", "square"] });
const KEY = /** @type {const} */ ([["served", "gain", "▲ served"], ["tied", "tied", "◆ tied"], ["slower", "soft", "▼ slower"], ["library", "library", "■ cuBLASLt"]]);
/** The axis ends where this share of a strip's samples does; slower ones are pinned to its end. */
const SHOWN = 0.92;
const TOP = 18;

customElements.define("chart-strips", class extends Chart {
  /** @returns {Strips} */
  get #spec() { return this.data; }
  height() { return TOP + this.#spec.strips.length * ROW + 30; }
  legend() {
    if (this.#spec.keyless) return nothing;
    const kinds = new Set(this.#spec.strips.map((strip) => strip.kind));
    return html`<span class="key">${KEY.filter(([kind]) => kinds.has(kind)).map(([, look, words]) => html`<span class=${look}>${words}</span>`)}</span>`;
  }
  count() { return this.#spec.strips.length; }
  table() {
    return {
      head: ["candidate", `median ${this.#spec.unit}`, "least", "most", "samples", "verdict"],
      rows: this.#spec.strips.map((strip) => [strip.name, number(strip.median), number(Math.min(...strip.samples)),
        number(Math.max(...strip.samples)), strip.samples.length, strip.note]),
    };
  }

  /** @param {number} width */
  #layout(width) {
    const left = Math.min(236, width * 0.46);
    const { strips } = this.#spec;
    const inner = strips.flatMap((strip) => {
      const sorted = strip.samples.toSorted((a, b) => a - b);
      return [sorted[0], sorted[Math.floor((sorted.length - 1) * SHOWN)], strip.median];
    });
    return scale(extent(inner), [left, width - 64]);
  }

  /** @param {number} place */
  point(place) {
    const strip = this.#spec.strips[place];
    const x = this.#layout(this.plotWidth);
    return { x: x(strip.median), y: TOP + ROW * (place + 0.5), href: strip.href,
      text: `${strip.name}: ${number(strip.median)} ${this.#spec.unit}, ${strip.samples.length} samples, ${strip.note}` };
  }

  /** @param {number} x @param {number} y */
  hit(x, y) {
    const place = Math.floor((y - TOP) / ROW);
    return x > 0 && place >= 0 && place < this.count() ? place : -1;
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} width @param {number} height */
  draw(pen, width, height) {
    const { strips, band } = this.#spec;
    const x = this.#layout(width);
    const [left, right] = [x(x.domain[0]), x(x.domain[1])];
    pen.clearRect(0, 0, width, height);
    pen.font = FONT;
    pen.textBaseline = "middle";
    if (band) {
      pen.fillStyle = colour("band");
      pen.fillRect(x(band[0]), TOP - 4, Math.min(right, x(band[1])) - x(band[0]), strips.length * ROW + 8);
    }
    pen.fillStyle = colour("soft");
    pen.textAlign = "center";
    pen.strokeStyle = colour("line");
    for (const value of ticks(x, (right - left) / 70)) {
      line(pen, Math.round(x(value)) + 0.5, TOP - 4, Math.round(x(value)) + 0.5, height - 26);
      pen.fillText(short(value), x(value), height - 16);
    }
    pen.textAlign = "left";
    pen.fillText(this.#spec.unit, right + 8, height - 16);
    strips.forEach((strip, place) => this.#strip(pen, strip, TOP + ROW * (place + 0.5), x, left, right, width));
  }

  /** @param {CanvasRenderingContext2D} pen @param {Strip} strip @param {number} y @param {any} x @param {number} left @param {number} right @param {number} width */
  #strip(pen, strip, y, x, left, right, width) {
    const [token, shape] = MARKS[strip.kind];
    pen.textAlign = "right";
    pen.fillStyle = colour(strip.kind === "served" ? "ink" : "soft");
    pen.font = strip.kind === "served" ? `600 ${FONT}` : FONT;
    pen.fillText(clipped(pen, strip.name, left - 12), left - 10, y);
    pen.textAlign = "left";
    pen.fillText(fixed(strip.median), right + 10, y, width - right - 10);
    pen.strokeStyle = pen.fillStyle = colour(token);
    pen.globalAlpha = 0.5;
    for (const sample of strip.samples) {
      const at = Math.min(x(sample), right + 2);
      line(pen, at, y - 6, at, y + 6);
    }
    pen.globalAlpha = 1;
    mark(pen, shape, x(strip.median), y, 5);
  }
});

/** The end of a text that fits. @param {CanvasRenderingContext2D} pen @param {string} text @param {number} width */
export function clipped(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let kept = text;
  while (kept.length > 1 && pen.measureText(`${kept}…`).width > width) kept = kept.slice(0, -1);
  return `${kept}…`;
}
