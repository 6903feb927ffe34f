// A grid of cells as a table: each has text, a colour and a state; illegal ones are hatched.

import { html, nothing } from "../lib/view.js";

/**
 * @typedef {object} Cell
 * @property {string} text @property {string} kind class of the cell
 * @property {number} [heat] 0 to 1: how strongly it is coloured
 * @property {string} [hint] said on hover and to screen readers
 * @property {string} [href]
 * @property {() => void} [chosen]
 * @property {boolean} [pressed]
 */
/**
 * @param {object} chart
 * @param {string} chart.title @param {string} chart.sentence
 * @param {string} chart.x name of the columns @param {string} chart.y name of the rows
 * @param {(string | number)[]} chart.columns @param {(string | number)[]} chart.rows
 * @param {(row: number, column: number) => Cell | null} chart.cell
 * @param {{kind: string, text: string, words: string, heat?: number}[]} chart.legend
 * @param {unknown} [chart.controls]
 */
export function grid({ title, sentence, x, y, columns, rows, cell, legend, controls }) {
  return html`<figure class="grid ${columns.length > 24 ? "dense" : ""}"><figcaption><h2>${title}</h2>${controls}</figcaption>
    <div class="scroll" tabindex="0" role="region" aria-label=${title}><table><caption class="visually-hidden">${title}: ${y} down, ${x} across</caption>
      <thead><tr><th scope="col"><span class="note">${y} ↓ ${x} →</span></th>${columns.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>${rows.map((name, row) => html`<tr><th scope="row">${name}</th>${columns.map((_, column) => drawn(cell(row, column)))}</tr>`)}</tbody>
    </table></div>
    <ul class="chips key" aria-label="Key">${legend.map((entry) => html`<li><span class="cell ${entry.kind}" .style=${heat(entry.heat)}>${entry.text}</span>
      ${entry.words}</li>`)}</ul>
    <p class="says">${sentence}</p></figure>`;
}

/** @param {number | undefined} value */
const heat = (value) => (value === undefined ? "" : `--heat:${Math.round(Math.min(0.42, value) * 100)}%`);

/** @param {Cell | null} cell */
function drawn(cell) {
  if (!cell) return html`<td></td>`;
  const { text, kind, hint, href, chosen, pressed } = cell;
  const words = hint ? html`<span class="visually-hidden"> ${hint}</span>` : nothing;
  const inside = href ? html`<a class="cell ${kind}" href=${href} title=${hint ?? nothing} .style=${heat(cell.heat)}>${text}${words}</a>`
    : chosen ? html`<button type="button" class="cell ${kind}" title=${hint ?? nothing} aria-pressed=${String(!!pressed)} .style=${heat(cell.heat)} @click=${chosen}>${text}${words}</button>`
      : html`<span class="cell ${kind}" title=${hint ?? nothing} .style=${heat(cell.heat)}>${text}${words}</span>`;
  return html`<td>${inside}</td>`;
}
