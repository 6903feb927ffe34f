// A forest of speed-ups: a row a problem, of which only those in view exist, so that 10,000 cost as much as 30.

import { extent, scale, ticks } from "./scale.js";
import { html, nothing, render } from "../lib/view.js";
import { SIGNS } from "../lib/format.js";

/**
 * @typedef {object} Row
 * @property {string} name @property {string} href
 * @property {number | null} value @property {number | null} low @property {number | null} high the ratio and its interval
 * @property {number | null} rival a second ratio, drawn hollow
 * @property {"faster" | "slower" | "tied" | "none"} verdict
 * @property {(string | number)[]} cells texts of the columns after the strip
 */
/**
 * @typedef {object} Forest
 * @property {number} rows @property {(place: number) => Row} row
 * @property {[number, number]} span of the ratios
 * @property {{name: string, key?: string}[]} columns: the name, the strip, then those of `cells`
 * @property {string} sort key of the column by which rows are sorted, with a leading `-` for descending
 * @property {(key: string) => void} sorted
 * @property {string} label
 */
const ROW = 30;
const SPARE = 6;
/** So few rows are shown without a scrollbar of their own. */
const ALL = 30;

customElements.define("chart-forest", class extends HTMLElement {
  /** @type {Forest | null} */
  #data = null;
  #waiting = false;

  get data() { return this.#data; }
  set data(data) {
    if (data === this.#data) return;
    const kept = this.#data?.sort === data?.sort && this.#data?.rows === data?.rows;
    this.#data = data;
    const body = this.querySelector(".forest-body");
    if (body && !kept) body.scrollTop = 0;
    this.#later();
  }

  #later = () => {
    if (this.#waiting) return;
    this.#waiting = true;
    requestAnimationFrame(() => {
      this.#waiting = false;
      if (this.#data) this.#update(this.#data);
    });
  };

  /** @param {Forest} data */
  #update(data) {
    const body = this.querySelector(".forest-body");
    const [top, height] = body ? [body.scrollTop, Math.max(body.clientHeight, 600)] : [0, 600];
    const first = Math.max(0, Math.floor(top / ROW) - SPARE);
    const last = Math.min(data.rows, Math.ceil((top + height) / ROW) + SPARE);
    const at = scale(data.span, [0, 100], true);
    const rows = [];
    for (let place = first; place < last; place++) rows.push(this.#row(data, place, at));
    render(html`<div class="forest" .style=${`--more:${data.columns.length - 2};--rows:${Math.max(1, data.rows)}`} role="table" data-all=${data.rows <= ALL ? "" : nothing} aria-label=${data.label} aria-rowcount=${data.rows + 1}>
      <div class="forest-row forest-head" role="row" aria-rowindex="1">${data.columns.map((column, place) => this.#header(data, column, place, at))}</div>
      <div class="forest-body" role="rowgroup" tabindex="0" @scroll=${this.#later} @keydown=${this.#pressed}>
        <div class="forest-all" role="presentation" .style=${`height:${data.rows * ROW}px`}>
          <div role="presentation" .style=${`transform:translateY(${first * ROW}px)`}>${rows}</div></div></div></div>`, this);
  }

  /** @param {Forest} data @param {{name: string, key?: string}} column @param {number} place @param {any} at */
  #header(data, column, place, at) {
    const sorted = data.sort.replace("-", "") === column.key ? (data.sort.startsWith("-") ? "descending" : "ascending") : "none";
    const next = data.sort === `-${column.key}` ? column.key : `-${column.key}`;
    const scaleOf = place === 1 ? html`<span class="strip ticks" aria-hidden="true">${ticks(at, Math.max(2, this.clientWidth / 160)).filter((value) => at(value) <= 94).map((value) => html`
      <i class=${value === 1 ? "unit" : ""} .style=${`left:${at(value)}%`}>${value}×</i>`)}</span>` : nothing;
    return html`<div role="columnheader" class=${`c${place}`} aria-sort=${column.key ? sorted : nothing}>${column.key
      ? html`<button type="button" class="sort" @click=${() => data.sorted(String(next))}>${column.name}<span aria-hidden="true">${
        sorted === "none" ? "" : sorted === "ascending" ? " ↑" : " ↓"}</span></button>` : html`<span class="visually-hidden">${column.name}</span>`}${scaleOf}</div>`;
  }

  /** @param {Forest} data @param {number} place @param {any} at */
  #row(data, place, at) {
    const row = data.row(place);
    const pin = (/** @type {number} */ value) => Math.max(1, Math.min(99, at(value)));
    const shown = row.value !== null && row.low !== null && row.high !== null;
    return html`<div class="forest-row" role="row" aria-rowindex=${place + 2}>
      <div role="rowheader" class="c0"><a href=${row.href} data-place=${place}>${row.name}</a></div>
      <div role="cell" class="c1"><span class="strip"><i class="one" .style=${`left:${pin(1)}%`}></i>${shown ? html`
        <i class="range ${row.verdict}" .style=${`left:${pin(/** @type {number} */ (row.low))}%;width:${Math.max(0.2, pin(/** @type {number} */ (row.high)) - pin(/** @type {number} */ (row.low)))}%`}></i>
        ${row.rival === null ? nothing : html`<i class="rival" .style=${`left:${pin(row.rival)}%`}></i>`}
        <i class="pip ${row.verdict}" .style=${`left:${pin(/** @type {number} */ (row.value))}%`}>${SIGNS[row.verdict]}</i>` : nothing}</span></div>
      ${row.cells.map((text, column) => html`<div role="cell" class=${`c${column + 2} ${column ? "" : row.verdict}`}>${text}</div>`)}</div>`;
  }

  /** Walks from row to row. @param {KeyboardEvent} event */
  #pressed = (event) => {
    const steps = /** @type {Record<string, number>} */ ({ ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9 });
    const step = steps[event.key];
    if (!step || !this.#data) return;
    event.preventDefault();
    const body = /** @type {HTMLElement} */ (event.currentTarget);
    const now = Number(/** @type {HTMLElement} */ (event.target).dataset.place ?? Math.floor(body.scrollTop / ROW) - step);
    const place = Math.max(0, Math.min(this.#data.rows - 1, now + step));
    if (place * ROW < body.scrollTop) body.scrollTop = place * ROW;
    else if ((place + 1) * ROW > body.scrollTop + body.clientHeight) body.scrollTop = (place + 1) * ROW - body.clientHeight;
    this.#update(this.#data);
    /** @type {HTMLElement | null} */ (body.querySelector(`[data-place="${place}"]`))?.focus({ preventScroll: true });
  };
});

/** A span for ratios that leaves out the most extreme 3 % on each side, one at least of a dozen, and holds 1. @param {Float64Array} ratios */
export function spanOf(ratios) {
  const sorted = ratios.filter((ratio) => ratio > 0).sort();
  if (!sorted.length) return /** @type {[number, number]} */ ([0.8, 1.25]);
  const cut = sorted.length < 12 ? 0 : Math.ceil(sorted.length * 0.03);
  const [low, high] = extent([Math.min(0.95, sorted[cut]), Math.max(1.05, sorted[sorted.length - 1 - cut])], true, 0.05);
  return /** @type {[number, number]} */ ([low, high]);
}
