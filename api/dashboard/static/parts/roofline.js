// The roofline: what each problem reaches against what the memory and the tensor cores allow.

import { distinct } from "../lib/columns.js";
import { number, times } from "../lib/format.js";
import { hrefOf } from "./forest_rows.js";

const GROUPS = [["faster", "gain"], ["tied", "tie"], ["slower", "loss"], ["none", "soft"]];

/** @param {import("../lib/page.js").Page} page @param {any} table @param {number[]} rows @param {string} device @param {"first" | "best"} against */
export function rooflineOf(page, table, rows, device, against) {
  const { columns } = table;
  const { x, y, group } = /** @type {ReturnType<typeof points>} */ ((table.points ??= {})[against] ??= points(table, against));
  const faint = new Uint8Array(table.rows).fill(1);
  for (const row of rows) faint[row] = 0;
  return {
    title: "Roofline", x, y, group, faint, lines: ceilings(table),
    groups: GROUPS.map(([shape, token]) => ({ shape, token, name: shape })),
    sentence: "The closer a point to its line, the less is left to win. Memory limits the slope, tensor cores the flats, by dtype. Drag over points to select them.",
    axes: { x: "flop per byte", y: "TFLOP/s", logX: true, logY: true },
    text: (/** @type {number} */ row) => `${table.name(row)}\n${number(columns.tflops[row])} TFLOP/s, ${number(columns.time_us[row])} µs, ${times(columns[against][row])}`,
    href: (/** @type {number} */ row) => hrefOf(table, row, device),
    rows: () => ({ head: ["problem", "flop per byte", "TFLOP/s", "speed-up"], rows: rows.map((row) => [table.name(row), number(x[row]), number(y[row]), times(columns[against][row])]) }),
    brushed: (/** @type {number[] | null} */ box) => page.set({ box: box ? box.map((value) => value.toPrecision(4)).join(",") : "" }, true),
  };
}

/** @param {any} table */
function ceilings(table) {
  const limits = table.ceilings;
  if (!limits) return [];
  const used = distinct(table.columns.dtype).map((word) => Object.keys(limits.tensor_tflops).find((dtype) => String(word).startsWith(dtype))).filter(Boolean);
  // Dtypes of one rate share a line.
  /** @type {Map<number, string[]>} */
  const rates = new Map();
  for (const dtype of /** @type {Set<string>} */ (new Set(used))) rates.set(limits.tensor_tflops[dtype], [...(rates.get(limits.tensor_tflops[dtype]) ?? []), dtype]);
  const flat = (/** @type {[number, any[]]} */ [most, dtypes]) => {
    return { name: `${dtypes.join(", ")}: ${number(most)}`, token: "soft", x: [0.1, most / limits.memory_tbs, 1e5], y: [0.1 * limits.memory_tbs, most, most] };
  };
  return [...rates].map(flat);
}

/** Where each problem lies, whatever is selected. @param {any} table @param {string} against */
function points({ rows, columns }, against) {
  const [x, y, group] = [new Float64Array(rows), new Float64Array(rows), new Uint8Array(rows)];
  const places = /** @type {Record<string, number>} */ (Object.fromEntries(GROUPS.map(([word], place) => [word, place])));
  for (let row = 0; row < rows; row++) {
    x[row] = columns.flops[row] / columns.bytes[row];
    y[row] = columns.tflops[row];
    group[row] = places[columns[`${against}_verdict`][row]];
  }
  return { x, y, group };
}
