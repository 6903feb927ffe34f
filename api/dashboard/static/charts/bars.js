// Bars in a table: a name, a bar, a number, a remark. Readable as text, by screen readers and on phones.

import { count } from "../lib/format.js";
import { html, nothing } from "../lib/view.js";

/**
 * @typedef {object} Bar
 * @property {unknown} name @property {number | null} value null: not known yet
 * @property {unknown} [note] @property {string} [text] instead of the number
 * @property {string} [token] of the colour
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
  return html`<figure class="bars"><figcaption><h2>${title}</h2>${legend ?? nothing}</figcaption>
    <table><caption class="visually-hidden">${title}</caption><colgroup><col class="name"><col><col class="figure"></colgroup><tbody>${rows.map((row) => html`
      <tr><th scope="row">${row.name}${row.note ? html`<span class="note">${row.note}</span>` : nothing}</th>
        <td class="length"><i .style=${`width:${length(row.value)}%;background:var(--${row.token ?? "mark"})`}></i></td>
        <td class="num">${row.text ?? count(row.value)}</td></tr>`)}</tbody></table>
    <p class="says">${sentence}</p></figure>`;
}
