// A selection of problems: chips in the URL, each with the number of problems that it holds.

import { cell } from "../lib/columns.js";
import { SIGNS, whole } from "../lib/format.js";
import { html, nothing } from "../lib/view.js";

/** Filters: the URL's parameter, its words, and the column. */
export const FILTERS = [["verdict", "Verdict", ""], ["class", "Class", "class"], ["dtype", "Dtype", "dtype"], ["layout", "Layout", "layout"],
  ["bound", "Bound by", "bound"], ["policy_of", "Policy", "policy"]];

/** @param {import("../lib/page.js").Page} page @param {string} name @returns {string[]} */
const chosen = (page, name) => page.param(name).split(",").filter(Boolean);

/** @param {any} table @param {string} column @param {string} against @param {number} row */
const valueOf = (table, column, against, row) =>
  column ? String(cell(table.columns[column], row)) : table.columns[`${against}_verdict`][row];

/** @param {import("../lib/page.js").Page} page @param {any} table @param {string[][]} filters @param {string} against @returns {number[]} rows */
export function select(page, table, filters, against) {
  const wanted = filters.map(([name, , column]) => ({ column, values: new Set(chosen(page, name)) })).filter((filter) => filter.values.size);
  const find = page.param("find").toLowerCase().replaceAll("×", "x").split(" ");
  const box = page.param("box").split(",").map(Number);
  if (!page.param("find") && !wanted.length && box.length !== 4) return Array.from({ length: table.rows }, (_, row) => row);
  const rows = [];
  for (let row = 0; row < table.rows; row++) {
    const key = table.keys[row].toLowerCase();
    if (!find.every((word) => key.includes(word))) continue;
    if (!wanted.every(({ column, values }) => values.has(valueOf(table, column, against, row)))) continue;
    if (box.length === 4 && !inside(table.columns, row, box)) continue;
    rows.push(row);
  }
  return rows;
}

/** @param {any} columns @param {number} row @param {number[]} box */
function inside(columns, row, [x0, x1, y0, y1]) {
  const intensity = columns.flops[row] / columns.bytes[row];
  return intensity >= x0 && intensity <= x1 && columns.tflops[row] >= y0 && columns.tflops[row] <= y1;
}

/** @param {import("../lib/page.js").Page} page @param {any} table @param {string[][]} filters */
export function chips(page, table, filters) {
  const against = page.param("against") === "best" ? "best" : "first";
  const active = [...filters.map(([name]) => name), "find", "box"].filter((name) => page.param(name));
  return html`<div class="filters">${filters.map(([name, words, column]) => {
    const tally = counts(table, column, against);
    if (tally.length < 2) return nothing;
    const on = chosen(page, name);
    const turn = (/** @type {string} */ value) => page.set({ [name]: (on.includes(value) ? on.filter((other) => other !== value) : [...on, value]).join(",") }, true);
    return html`<fieldset><legend>${words}</legend>${tally.map(([value, number]) => html`
      <button type="button" class="chip" aria-pressed=${String(on.includes(value))} @click=${() => turn(value)}>${column ? "" : `${SIGNS[value]} `}${
        value} <span>${whole(number)}</span></button>`)}</fieldset>`;
  })}${active.length ? html`<button type="button" class="quiet" @click=${() => page.set(Object.fromEntries(active.map((name) => [name, ""])), true)}>Show all</button>` : nothing}</div>`;
}

/** Values in the URL that no problem has, each as a sentence. @param {import("../lib/page.js").Page} page @param {any} table @param {string} against */
export function unmet(page, table, against) {
  return FILTERS.flatMap(([name, words, column]) => {
    const known = counts(table, column, against).map(([value]) => value);
    const odd = chosen(page, name).filter((value) => !known.includes(value));
    return odd.length ? [`${words} ${odd.join(", ")} matches no problem: there are ${known.join(", ")}.`] : [];
  });
}

/** @param {any} table @param {string} column @param {string} against @returns {[string, number][]} */
function counts(table, column, against) {
  table.tallies ??= {};
  const name = column || against;
  if (!table.tallies[name]) {
    /** @type {[string, number][]} */
    const found = column ? tallied(table.columns[column]) : Object.entries(verdicts(table.columns[`${against}_verdict`]));
    const there = found.filter(([, number]) => number);
    table.tallies[name] = column ? there.sort((a, b) => b[1] - a[1]) : there;
  }
  return table.tallies[name];
}

/** Rows of each value of a coded column. @param {{values: any[], at: number[]}} column @returns {[string, number][]} */
function tallied({ values, at }) {
  const numbers = new Array(values.length).fill(0);
  for (const place of at) numbers[place]++;
  return values.map((value, place) => [String(value), numbers[place]]);
}

/** @param {string[]} words a verdict a row @returns {Record<string, number>} */
export function verdicts(words) {
  const tally = /** @type {Record<string, number>} */ ({ faster: 0, tied: 0, slower: 0, none: 0 });
  for (const word of words) tally[word]++;
  return tally;
}
