// The layouts of one config: its tiles of A and B, and its accumulators.

import { html, nothing } from "../lib/view.js";

const K_OF = /** @type {Record<string, number>} */ ({ tf32: 8, fp8_e4m3: 32, fp8_e5m2: 32, int8: 32, uint8: 32 });

/** A tile in shared memory as parameters of the layouts: K-major unless the operand is transposed in memory.
 * @param {number} extent of M or N @param {number} depth of K @param {boolean} k whether K is contiguous @param {number} swizzle @param {string} dtype */
const tile = (extent, depth, k, swizzle, dtype) => ({ rows: k ? extent : depth, cols: k ? depth : extent, mode: swizzle ? `${swizzle}B` : "none", dtype });

/**
 * What can be drawn of a config: words, and the layout with its parameters.
 * @param {{knobs: Record<string, any>}} config @param {{layout: string, dtype_a: string, dtype_b: string, dtype_acc: string}} problem
 * @returns {[string, Record<string, string | number>][]}
 */
export function ownLayouts({ knobs }, problem) {
  const { tile_m: m, tile_n: n, tile_k: k, swizzle_a: a, swizzle_b: b, instructions_n: beside } = knobs;
  if (![m, n, k].every(Number) || a === undefined || b === undefined) return [];
  const [ka, kb] = [problem.layout[0] === "n", problem.layout[1] === "t"];
  const tiles = /** @type {const} */ ([["A", tile(m, k, ka, a, problem.dtype_a), ka], ["B", tile(n, k, kb, b, problem.dtype_b), kb]]);
  const found = tiles.flatMap(([name, at, major]) => /** @type {[string, Record<string, string | number>][]} */ ([
    [`${name}: swizzle`, { layout: "swizzle", tile: name, ...at, rows: Math.min(8, at.rows) }], [`${name}: TMA boxes`, { layout: "boxes", tile: name, ...at, major: major ? "k" : "mn" }],
    [`${name}: banks`, { layout: "banks", tile: name, pattern: "wgmma", ...at }],
    [`${name}: descriptor`, { layout: "descriptor", tile: name, mode: at.mode }],
  ]));
  if (!beside) return found;
  return [...found, ["accumulators", { layout: "fragment", instruction: `wgmma.m64n${n / beside}k${K_OF[problem.dtype_a] ?? 16}`, operand: "D", dtype: problem.dtype_acc.replace("_promoted", "") }]];
}

/** Links to them that keep the config. @param {any} answer of explain @param {URLSearchParams} query of the page */
export function ownLinks(answer, query) {
  const links = ownLayouts(answer.config, answer.problem);
  if (!links.length) return nothing;
  const kept = Object.fromEntries(["problem", "knobs", "family", "device"].map((name) => [name, query.get(name) ?? ""]).filter(([, value]) => value));
  const here = query.toString();
  return html`<nav class="row own" aria-label="Layouts of this config">${links.map(([words, parameters]) => {
    const wanted = new URLSearchParams({ ...kept, ...Object.fromEntries(Object.entries(parameters).map(([name, value]) => [name, String(value)])) });
    return html`<a class="tab" aria-current=${wanted.toString() === here ? "true" : nothing} href=${`/layouts?${wanted}`}>${words}</a>`;
  })}</nav>`;
}
