// N × K for one M: a cell a problem, so that a weight that behaves badly stands out.

import { grid } from "../charts/grid.js";
import { SIGNS, times } from "../lib/format.js";
import { html } from "../lib/view.js";
import { hrefOf } from "./forest_rows.js";

const MOST = 10;
const KINDS = /** @type {Record<string, string>} */ ({ faster: "win", slower: "lose", tied: "even", none: "untried" });

/** @param {import("../lib/page.js").Page} page @param {any} table @param {number[]} rows @param {string} device @param {"first" | "best"} against */
export function shapesOf(page, table, rows, device, against) {
  const { columns } = table;
  const ranked = frequent(rows.map((row) => columns.m[row]), 40);
  const sizes = ranked.toSorted((a, b) => a - b);
  const m = sizes.includes(Number(page.param("m"))) ? Number(page.param("m")) : ranked[0];
  const here = rows.filter((row) => columns.m[row] === m);
  const [ns, ks] = ["n", "k"].map((name) => frequent(here.map((row) => columns[name][row]), MOST).sort((a, b) => a - b));
  const held = new Map();
  for (const row of here) {
    const place = `${columns.n[row]},${columns.k[row]}`;
    const there = held.get(place);
    if (there) there.push(row);
    else held.set(place, [row]);
  }
  return grid({
    title: "N × K at one M", x: "K", y: "N", rows: ns, columns: ks,
    sentence: `Speed-ups at M = ${m ?? "–"}${here.length > held.size ? "; where dtypes or layouts share a shape, the lowest" : ""}. A red row or column is a weight to look at.`,
    controls: html`<label>M <select aria-label="M" @change=${(/** @type {any} */ event) => page.set({ m: event.target.value })}>${sizes.map((size) => html`
      <option value=${size} ?selected=${size === m}>${size}</option>`)}</select></label>`,
    legend: [{ kind: "win", text: "▲", words: "faster", heat: 0.4 }, { kind: "even", text: "◆", words: "tied" }, { kind: "lose", text: "▼", words: "slower", heat: 0.4 }],
    cell: (down, across) => {
      const found = held.get(`${ns[down]},${ks[across]}`);
      if (!found) return null;
      const row = found.reduce((/** @type {number} */ a, /** @type {number} */ b) => ((columns[against][a] ?? 9) <= (columns[against][b] ?? 9) ? a : b));
      const [verdict, ratio] = [columns[`${against}_verdict`][row], columns[against][row]];
      return { kind: KINDS[verdict], text: ratio ? `${SIGNS[verdict]}${ratio.toFixed(2)}` : "–", heat: Math.min(0.7, 0.12 + 2 * Math.abs(Math.log(ratio ?? 1))),
        hint: `${table.name(row)} ${times(ratio)} ${verdict}`, href: hrefOf(table, row, device) };
    },
  });
}

/** The most frequent values, these first. @param {number[]} values @param {number} most */
function frequent(values, most) {
  const tally = new Map();
  for (const value of values) tally.set(value, (tally.get(value) ?? 0) + 1);
  return [...tally].sort((a, b) => b[1] - a[1]).slice(0, most).map(([value]) => value);
}
