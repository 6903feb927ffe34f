import "../../charts/scatter.js";
import { cell, config } from "../../lib/columns.js";
import { nameOf } from "../../lib/configs.js";
import { number, percent, whole } from "../../lib/format.js";
import { html } from "../../lib/view.js";

const GROUPS = [{ token: "mark", shape: "dot", name: "screened" }, { token: "tie", shape: "tied", name: "finalist" }, { token: "gain", shape: "faster", name: "served" }];
/** With more marks than this, shapes can't be told apart. */
const MARKED = 3000;
const TOLD = ["stages", "schedule", "cluster_m", "cluster_n", "split_k", "raster", "raster_group", "epilogue"];

/** Every screened candidate in turn, and the best so far. @param {import("../../lib/page.js").Page} page @param {any} got */
export function searchCard(page, got) {
  const table = got.measurements;
  if (!table?.rows) return html`<h2>Search</h2>`;
  const { columns, configs } = table;
  const { rows, x, y } = /** @type {ReturnType<typeof screened>} */ (table.screened ??= screened(table));
  if (!rows.length) return html`<h2>Search</h2><p class="note">No screened candidate has a time.</p>`;
  const best = { x: /** @type {number[]} */ ([]), y: /** @type {number[]} */ ([]), token: "gain", name: "" };
  y.forEach((time, place) => {
    const before = best.y.at(-1) ?? Infinity;
    if (time >= before) return;
    if (best.y.length) { best.x.push(place + 1); best.y.push(before); }
    best.x.push(place + 1);
    best.y.push(time);
  });
  best.x.push(rows.length);
  best.y.push(best.y.at(-1) ?? 0);
  const nameAt = (/** @type {number} */ place) => nameOf(config(configs, columns.config[rows[place]]), TOLD);
  const winner = got.answer.evidence?.measurement_id;
  return html`<chart-scatter .data=${{
    title: "Search", x, y, faint: faintOf(page, got, rows), lines: [best], groups: GROUPS, group: rows.length <= MARKED ? kindsOf(table, rows, winner) : undefined,
    axes: { x: "candidate", y: "screened µs", logY: y.length > 2 && Math.max(...sampled(y)) / Math.min(...sampled(y)) > 4 },
    sentence: `Each mark is a candidate as it was screened: short and alone, so not comparable with finals. ◆ went to the finals, ▲ is served; the line is the best so far. ${stopped(got)}${ahead(got.outlook)}${table.sampled ? ` A sample: one of every ${table.step}, of ${whole(table.total)}.` : ""}`,
    text: (/** @type {number} */ place) => `${nameAt(place)}\n${number(y[place])} µs, candidate ${place + 1}`,
    href: (/** @type {number} */ place) => (winner ? `/compare?a=${winner}&b=${columns.id[rows[place]]}` : undefined),
    rows: () => ({ head: ["candidate", "config", "µs"], rows: rows.map((_, place) => [String(place + 1), nameAt(place), number(y[place])]) }),
  }}></chart-scatter>`;
}

/** Which of the screened were finalists, and which is served. @param {any} table @param {number[]} rows @param {number | undefined} winner */
function kindsOf({ rows: many, columns: { id, stage, config } }, rows, winner) {
  const final = stage.values.indexOf("final");
  const finals = new Set();
  let served = -1;
  for (let row = 0; row < many; row++) {
    if (stage.at[row] === final) finals.add(config[row]);
    if (id[row] === winner) served = config[row];
  }
  return Uint8Array.from(rows, (row) => (config[row] === served ? 2 : finals.has(config[row]) ? 1 : 0));
}

/** Rows of screened candidates, and their points. @param {any} table */
function screened({ rows: many, columns: { stage, median_us: times } }) {
  const screen = stage.values.indexOf("screen");
  const rows = /** @type {number[]} */ ([]);
  for (let row = 0; row < many; row++) if (stage.at[row] === screen && times[row] !== null) rows.push(row);
  const [x, y] = [new Float64Array(rows.length), new Float64Array(rows.length)];
  for (let place = 0; place < rows.length; place++) {
    x[place] = place + 1;
    y[place] = times[rows[place]];
  }
  return { rows, x, y };
}

/** At most 10,000 of the values: spreading more overflows the stack. @param {Float64Array} values */
const sampled = (values) => (values.length <= 10_000 ? values : values.filter((_, place) => place % Math.ceil(values.length / 10_000) === 0));

/** @param {import("../../lib/page.js").Page} page @param {any} got @param {number[]} rows */
function faintOf(page, got, rows) {
  const chosen = page.param("cell");
  const cells = got.space?.cells;
  if (!chosen || !cells) return undefined;
  const { columns, configs } = got.measurements;
  return Uint8Array.from(rows, (row) => {
    const at = columns.config[row];
    return Number(`${cell(configs.knobs[cells.y], at)},${cell(configs.knobs[cells.x], at)}` !== chosen);
  });
}

/** What further search may still gain. @param {any} outlook */
function ahead(outlook) {
  if (!outlook || outlook.chance === null || outlook.gain === undefined) return "";
  const left = outlook.pool - outlook.tried;
  return left > 0 ? ` Expected gain left: ${percent(outlook.gain, 1)} if all ${whole(left)} untried candidates are tried; the chance that one is over ${percent(outlook.margin)} faster is ${percent(outlook.chance)}.` : " Every candidate worth trying was tried.";
}

/** @param {any} got */
function stopped(got) {
  const why = got.study?.study?.stopped_because;
  return why ? `It stopped because ${why}.` : "";
}
