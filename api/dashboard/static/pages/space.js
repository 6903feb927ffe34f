// Space: what is legal for a problem, and what does each rule cost?

import { bars } from "../charts/bars.js";
import { grid } from "../charts/grid.js";
import { count, number } from "../lib/format.js";
import { html, nothing } from "../lib/view.js";
import { devicePicker, devicesOf } from "../parts/devices.js";
import { problemOf, shapeBox } from "../parts/shape.js";

/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  page.title("Space");
  const [{ key, P, text }, { device: tuned, all }] = await Promise.all([problemOf(page), devicesOf(page)]);
  const device = tuned || all[0].name;
  /** @type {any} */
  let space = null;
  let counting = false;
  const axes = () => ({ x: page.param("x", "tile_n"), y: page.param("y", "tile_m") });
  const load = async (legal = false) => {
    space = await page.get("/v1/space", { ...P, device, ...axes(), legal: legal || undefined });
    page.redraw();
  };
  const countLegal = async () => {
    counting = true;
    page.redraw();
    await load(true).finally(() => { counting = false; });
  };
  page.show(() => html`<h1>What is legal, and what does each rule cost?</h1>
    <p class="lead">Each rule has a sentence, a source and one predicate. The same rule filters trillions of configs and explains one. <a href="/rules">All rules</a></p>
    <div class="row">${shapeBox(page, text)}${devicePicker(page, all, device)}</div>
    ${space ? html`<div class="stack">${space.families.map((/** @type {any} */ family) => html`<section class="card">${waterfall(family)}
        ${family.legal === null ? html`<button type="button" class="quiet small" ?disabled=${counting} @click=${countLegal}>${counting ? "Counting …" : "Count the legal ones exactly (some seconds)"}</button>` : nothing}</section>`)}
      ${space.cells ? html`<section class="card">${cellGrid(page, space, load, key, device)}</section>` : nothing}</div>` : nothing}`);
  await load();
}

/** @param {any} family */
function waterfall(family) {
  let left = family.product;
  const rows = family.removed.filter((/** @type {any} */ rule) => rule.count).map((/** @type {any} */ rule) => {
    left -= rule.count;
    return { name: html`<a href=${`/rules?id=${encodeURIComponent(rule.rule)}&family=${family.family}`}>${rule.rule}</a>`, value: rule.count,
      token: rule.kind === "worth" ? "tie" : "loss", note: html`${rule.sentence} <span class="soft">· ${count(Math.max(0, left))} left</span>` };
  });
  return bars({
    title: `${family.family}: ${count(family.product)} configs, ${family.legal === null ? "" : `${count(family.legal)} legal, `}${count(family.worth)} worth trying`, log: true,
    legend: html`<span class="key"><span class="loss">■ illegal</span><span class="tied">■ legal, but not worth a try</span></span>`,
    sentence: "Rules in the order they apply, with what each removes of what those before it left. Lengths are logarithmic.",
    bars: [{ name: "all knobs’ values", value: family.product, token: "mark" }, ...rows, { name: "worth trying", value: family.worth, token: "gain" }],
  });
}

/** @param {import("../lib/page.js").Page} page @param {any} space @param {() => Promise<void>} load @param {string} key @param {string} device */
function cellGrid(page, space, load, key, device) {
  const { cells } = space;
  const family = space.families.find((/** @type {any} */ entry) => entry.family === cells.family);
  const pick = (/** @type {"x" | "y"} */ name) => html`<label>${name === "x" ? "across" : "down"} <select @change=${(/** @type {any} */ event) => { page.set({ [name]: event.target.value }); void load(); }}>
    ${family.knobs.map((/** @type {any} */ knob) => html`<option ?selected=${knob.name === cells[name]}>${knob.name}</option>`)}</select></label>`;
  const most = Math.max(1, ...cells.worth.flat());
  return grid({
    title: `${cells.y} × ${cells.x}`, x: cells.x, y: cells.y, rows: cells.y_values, columns: cells.x_values,
    controls: html`<span class="row">${pick("y")}${pick("x")}</span>`,
    sentence: "How many configs of each cell are worth trying. Choose a cell to open it in Explain.",
    legend: [{ kind: "cool", text: "12", words: "worth trying", heat: 0.3 }, { kind: "dull", text: "", words: "legal, not worth a try" }, { kind: "hatched", text: "", words: "illegal" }],
    cell: (row, column) => {
      const [state, rule, worth] = [cells.state[row][column], cells.rule[row][column], cells.worth[row][column]];
      const [down, across] = [cells.y_values[row], cells.x_values[column]];
      const href = `/explain?${new URLSearchParams({ problem: key, device, family: cells.family, knobs: `${cells.y}=${down},${cells.x}=${across}` })}`;
      const expected = cells.expected_us[row][column];
      if (state === "worth") return { kind: "cool", text: count(worth), heat: 0.08 + 0.5 * Math.log(worth + 1) / Math.log(most + 1), href, hint: `${cells.y}=${down}, ${cells.x}=${across}: ${worth} worth trying${expected ? `, at best ${number(expected)} µs expected` : ""}` };
      return { kind: state === "illegal" ? "hatched" : "dull", text: "", href, hint: `${cells.y}=${down}, ${cells.x}=${across}: ${state === "illegal" ? "illegal" : "not worth a try"}${rule ? ` (${rule})` : ""}` };
    },
  });
}
