// Bars in a table: a name, a bar, a number, a remark. Readable as text, by screen readers and on phones.

import { count } from "../lib/format.js";
import { html, nothing } from "../lib/view.js";

/**
 * @typedef {object} Bar
 * @property {unknown} name @property {number | null} value null: not known yet
 * @property {unknown} [note] @property {unknown} [text] instead of the number
 * @property {string} [token] of the colour @property {string} [beside] a short remark behind the number
 */
/**
 * @param {object} chart
 * @param {string} chart.title @param {string} chart.sentence
 * @param {Bar[]} chart.bars
 * @param {boolean} [chart.log] lengths on a logarithmic scale from 1
 * @param {number} [chart.most] the value of a full bar
 * @param {unknown} [chart.legend]
 */
export function bars({ title, sentence, bars: rows, log, most, legend }) {
  const values = rows.map((row) => row.value ?? 0);
  const full = most ?? Math.max(...values, 0);
  const length = (/** @type {number | null} */ value) => {
    if (!value) return 0;
    const share = log ? Math.log10(value + 1) / Math.log10(full + 1) : value / full;
    return Math.max(0.4, Math.min(100, share * 100));
  };
  const besides = rows.some((row) => row.beside);
  return html`<figure class=${`bars ${rows.some((row) => row.note) ? "noted" : ""}`}><figcaption><h2>${title}</h2>${legend}</figcaption>
    <table><caption class="visually-hidden">${title}</caption><colgroup><col class=${besides ? "short" : "name"}><col><col class="figure">${besides ? html`<col class="beside">` : nothing}</colgroup><tbody>${rows.map((row) => html`
      <tr><th scope="row">${row.name}${row.note ? html`<span class="note">${row.note}</span>` : nothing}</th>
        <td class="length"><i .style=${`width:${length(row.value)}%;background:var(--${row.token ?? "mark"})`}></i></td>
        <td class="num">${row.text ?? count(row.value)}</td>${besides ? html`<td class="beside">${row.beside}</td>` : nothing}</tr>`)}</tbody></table>
    <p class="says">${sentence}</p></figure>`;
}
