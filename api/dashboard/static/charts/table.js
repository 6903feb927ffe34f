// Tables: a page's own, and what a chart shows.

import { whole } from "../lib/format.js";
import { html, nothing } from "../lib/view.js";

/** @typedef {{head: string[], rows: (string | number)[][]}} Table */
const MOST_ROWS = 500;

/** @param {string} name @param {unknown[]} head names of columns; one in an array is of numbers @param {unknown} rows */
export const tableOf = (name, head, rows) => html`<div class="scroll" tabindex="0" role="region" aria-label=${name}><table>
  <caption class="visually-hidden">${name}</caption>
  <thead><tr>${head.map((words) => html`<th scope="col" class=${Array.isArray(words) ? "num" : nothing}>${words}</th>`)}</tr></thead>
  <tbody>${rows}</tbody></table></div>`;

/** @param {Table | null} table @param {string} title */
export function asTable(table, title) {
  if (!table) return nothing;
  const more = table.rows.length - MOST_ROWS;
  return html`<div class="scroll tall" tabindex="0" role="region" aria-label=${`${title}, as a table`}><table>
    <thead><tr>${table.head.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${table.rows.slice(0, MOST_ROWS).map((row) => html`<tr>${row.map((value) => html`
      <td class=${typeof value === "number" ? "num" : ""}>${value}</td>`)}</tr>`)}</tbody></table>
    ${more > 0 ? html`<p class="note">${whole(more)} further rows are left out.</p>` : nothing}</div>`;
}
