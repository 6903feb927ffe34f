// Problems: where do we win, tie, lose?

import "../charts/forest.js";
import "../charts/scatter.js";
import { merged } from "../lib/columns.js";
import { meanWithin, percent, SIGNS, times, verdict, whole } from "../lib/format.js";
import { latest } from "../lib/page.js";
import { titleOfKey } from "../lib/problem.js";
import { html, nothing } from "../lib/view.js";
import { devicePicker, devicesOf } from "../parts/devices.js";
import { chips, FILTERS, select, unmet, verdicts } from "../parts/selection.js";
import { forestOf, orders } from "../parts/forest_rows.js";
import { rooflineOf } from "../parts/roofline.js";
import { shapesOf } from "../parts/shapes.js";

/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  page.title("Problems");
  let { device, devices } = await devicesOf(page);
  /** @type {any} */
  let table = null;
  /** What the shown charts were made from; they are made anew only when it changes. */
  let made = /** @type {any} */ ({ of: null });

  let [after, timer] = [0, 0];
  const load = latest(async () => {
    if (!device) ({ device, devices } = await devicesOf(page));
    if (!device) return;
    const found = await page.get("/v1/bests:columns", { device, policy: page.param("policy"), after });
    // Under a policy that is new here, other rows have times, too.
    if (found.changed && String(Object.keys(found.policies)) !== String(Object.keys(table.policies))) return all();
    table = prepared(merged(table, found));
    after = found.version;
    made = { of: null, plots: made.plots };
    page.redraw();
    // At first the service is still asking rules and comparing kernels.
    if (found.columns.stale.includes(null) || found.columns.forbidden.includes(null)) {
      clearTimeout(timer);
      timer = setTimeout(all, 3000);
    }
  });
  const all = () => {
    after = 0;
    return load();
  };
  page.live({ best: load, began: load, hello: all }, { device });

  page.show(() => {
    if (!device) return html`<h1>Where do we win, tie, lose?</h1>
      <p class="sentence">Nothing is measured yet. Run <code>gemmtune tune 4096x4096x4096</code>, or <a href="/campaigns">create a campaign</a>.</p>`;
    if (!table) return html`<h1>Where do we win, tie, lose?</h1>`;
    // The list is drawn a frame earlier than the plots.
    if (made.of !== page.query.toString()) {
      made = { of: page.query.toString(), ...charts(page, table, device), plots: made.plots, late: true };
      page.redraw();
    } else if (made.late) Object.assign(made, { plots: plots(page, table, device, made.rows), late: false });
    return html`<h1>Where do we win, tie, lose?</h1>
      ${made.headline}
      <div class="row">${devicePicker(page, devices, device)}
        <label>Find <input type="search" name="find" .value=${page.param("find")} placeholder="4096x" @input=${(/** @type {any} */ event) => page.set({ find: event.target.value })}></label>
        <label>Against <select @change=${(/** @type {any} */ event) => page.set({ against: event.target.value })}>
          <option value="" ?selected=${!page.param("against")}>cuBLASLt’s first choice</option>
          <option value="best" ?selected=${page.param("against") === "best"}>its best candidate</option></select></label></div>
      ${chips(page, table, FILTERS)}
      ${made.unmet.length || !made.rows.length ? html`<p class="sentence loss" role="status">${made.unmet.join(" ") || "No problem matches these filters together."}</p>` : nothing}
      <section class="card"><chart-forest .data=${made.forest}></chart-forest>
        <p class="says">${made.sentence}</p></section>
      ${made.plots}`;
  });
  await load();
}

/** @param {any} table */
function prepared(table) {
  for (const against of ["first", "best"]) {
    const [low, high] = [table.columns[`${against}_low`], table.columns[`${against}_high`]];
    table.columns[`${against}_verdict`] = low.map((/** @type {number} */ value, /** @type {number} */ row) => verdict(value, high[row]));
  }
  table.keys = table.columns.key;
  // Few of thousands of names are shown.
  table.name = (/** @type {number} */ row) => titleOfKey(table.keys[row]);
  return table;
}

/** @param {import("../lib/page.js").Page} page @param {any} table @param {string} device */
function charts(page, table, device) {
  const against = page.param("against") === "best" ? "best" : "first";
  const rows = select(page, table, FILTERS, against);
  const sorted = orders(table, rows, page.param("sort", "-ratio"), against);
  const forest = forestOf(page, table, sorted, device, against);
  return {
    rows, unmet: unmet(page, table, against), forest, headline: headline(table, rows, against),
    sentence: `A row is a problem: the mark is the speed-up of what is served over cuBLASLt’s ${against === "first" ? "first choice" : "best candidate"} with the 95 % interval, the circle the one over its ${
      against === "first" ? "best candidate" : "first choice"}. ▲ surely faster, ▼ surely slower, ◆ a tie; marks at the edge lie beyond it. † The kernel has changed since. ✕ A rule forbids it by now: it isn’t served. Arrow keys walk the rows.`,
  };
}

/** @param {import("../lib/page.js").Page} page @param {any} table @param {string} device @param {number[]} rows */
function plots(page, table, device, rows) {
  const against = page.param("against") === "best" ? "best" : "first";
  return html`<div class="cards"><section class="card"><chart-scatter .data=${rooflineOf(page, table, rows, device, against)}></chart-scatter></section>
    ${rows.length ? html`<section class="card">${shapesOf(page, table, rows, device, against)}</section>` : nothing}</div>`;
}

/** @param {any} table @param {number[]} rows @param {"first" | "best"} against */
function headline(table, rows, against) {
  // Nobody gains by what is not served.
  const served = rows.filter((row) => !table.columns.forbidden[row]);
  const forbidden = rows.length - served.length;
  const compared = served.filter((row) => table.columns[against][row] !== null);
  const ratios = compared.map((row) => table.columns[against][row]);
  // Of one problem they are its ratio's.
  const [mean, low, high] = ratios.length > 1 ? meanWithin(ratios) : ["", "_low", "_high"].map((end) => table.columns[against + end][compared[0]]);
  const tally = verdicts(served.map((row) => table.columns[`${against}_verdict`][row]));
  const word = verdict(low, high);
  const all = rows.length === table.rows;
  return html`<dl class="facts" id="headline">
    <div><dt>${all ? "problems" : `of ${whole(table.rows)} problems selected`}</dt><dd>${whole(rows.length)}</dd></div>
    ${mean ? html`<div><dt>geometric mean of ${all ? "all" : "the selection"} (${low.toFixed(3)}\u00a0–\u2060\u00a0${high.toFixed(3)})</dt>
      <dd class=${word}>${SIGNS[word]} ${times(mean)}</dd></div>` : nothing}
    ${Object.entries(tally).map(([word, held]) => held ? html`
      <div><dt>${word === "none" ? "without a baseline" : word} (${percent(held / rows.length)})</dt><dd class=${word}>${SIGNS[word]} ${whole(held)}</dd></div>` : nothing)}
    ${forbidden ? html`<div><dt>forbidden by a rule, not counted (${percent(forbidden / rows.length)})</dt><dd class="loss">✕ ${whole(forbidden)}</dd></div>` : nothing}
    ${table.sampled ? html`<div><dt>a sample: the store has ${whole(table.total)}</dt><dd>1 in ${Math.round(table.total / table.rows)}</dd></div>` : nothing}
  </dl>`;
}
