// Rows of the forest: their order and their texts.

import { spanOf } from "../charts/forest.js";
import { number, percent, times } from "../lib/format.js";

/** Policies that have a column of their own where any problem was timed under them. */
const OTHERS = [{ name: "Own clock", key: "sustained" }, { name: "Chain", key: "chain" }];

/**
 * The rows in the order asked. What is missing comes last, and equal values stay in the order of their keys.
 * @param {any} table @param {number[]} rows ascending @param {string} sort @param {"first" | "best"} against @returns {ArrayLike<number>}
 */
export function orders(table, rows, sort, against) {
  const all = (table.orders ??= {})[`${sort} ${against}`] ??= sorted(table, sort, against);
  if (rows.length === table.rows) return all;
  const wanted = new Uint8Array(table.rows);
  for (const row of rows) wanted[row] = 1;
  return all.filter((/** @type {number} */ row) => wanted[row]);
}

/** All rows in the order asked. @param {any} table @param {string} sort @param {"first" | "best"} against */
function sorted(table, sort, against) {
  const { columns, policies } = table;
  const down = sort.startsWith("-") ? -1 : 1;
  const rows = Uint32Array.from({ length: table.rows }, (_, row) => row);
  const values = /** @type {Record<string, (row: number) => number | null>} */ ({
    ratio: (row) => columns[against][row], time: (row) => columns.time_us[row], bound: (row) => shareOf(columns, row),
    sustained: (row) => policies?.sustained?.[against]?.[row] ?? null, chain: (row) => policies?.chain?.[against]?.[row] ?? null,
    at: (row) => columns.taken_at[row],
  })[sort.replace("-", "")];
  if (!values) return down > 0 ? rows : rows.reverse();
  const held = Float64Array.from(rows, (row) => (values(row) ?? down * Infinity) * down);
  return rows.sort((a, b) => held[a] - held[b] || a - b);
}

/** @param {any} columns @param {number} row */
const shareOf = (columns, row) => (columns.roofline_us[row] ? columns.roofline_us[row] / columns.time_us[row] : null);

/** @param {import("../lib/page.js").Page} page @param {any} table @param {ArrayLike<number>} rows @param {string} device @param {"first" | "best"} against */
export function forestOf(page, table, rows, device, against) {
  const { columns, policies } = table;
  const other = against === "first" ? "best" : "first";
  const shown = OTHERS.filter(({ key }) => policies?.[key]?.[against]?.some((/** @type {number | null} */ ratio) => ratio !== null));
  const under = (/** @type {string} */ policy, /** @type {number} */ row) => times(policies?.[policy]?.[against]?.[row]);
  return {
    rows: rows.length, label: "Speed-ups, a row a problem", sort: page.param("sort", "-ratio"), sorted: (/** @type {string} */ key) => page.set({ sort: key }),
    span: spanOf(Float64Array.from(rows, (row) => columns[against][row] ?? 0)),
    columns: [{ name: "Problem", key: "key" }, { name: "Interval" }, { name: "Speed-up", key: "ratio" }, ...shown, { name: "µs", key: "time" }, { name: "% bound", key: "bound" }],
    row: (/** @type {number} */ place) => {
      const row = rows[place];
      return {
        name: (columns.forbidden[row] ? "✕ " : columns.stale[row] ? "† " : "") + table.name(row), href: hrefOf(table, row, device),
        value: columns[against][row], low: columns[`${against}_low`][row], high: columns[`${against}_high`][row],
        rival: columns[other][row], verdict: columns[`${against}_verdict`][row],
        cells: [times(columns[against][row]), ...shown.map(({ key }) => under(key, row)), number(columns.time_us[row]), percent(shareOf(columns, row))],
      };
    },
  };
}

/** @param {any} table @param {number} row @param {string} device */
export const hrefOf = (table, row, device) => `/problem?${new URLSearchParams({ key: table.keys[row], device })}`;
