import { grid } from "../../charts/grid.js";
import { cell } from "../../lib/columns.js";
import { number } from "../../lib/format.js";
import { html } from "../../lib/view.js";

/** Two knobs against each other: measured, untried, not worth it, illegal. @param {import("../../lib/page.js").Page} page @param {any} got */
export function tilesCard(page, got) {
  const cells = got.space?.cells;
  if (!cells) return html`<h2>Two knobs against each other</h2><p class="note">${got.space?.refused ?? ""}</p>`;
  const family = got.space.families.find((/** @type {any} */ entry) => entry.family === cells.family);
  const best = fastest(got.measurements, cells);
  const least = Math.min(...best.values());
  const winner = got.answer.config?.family === cells.family ? got.answer.config.knobs : {};
  const pick = (/** @type {"x" | "y"} */ name) => html`<label>${name === "x" ? "across" : "down"} <select @change=${(/** @type {any} */ event) => got.reload({ [name]: event.target.value })}>
    ${family.knobs.filter((/** @type {any} */ knob) => knob.values.length > 1).map((/** @type {any} */ knob) => html`<option ?selected=${knob.name === cells[name]}>${knob.name}</option>`)}</select></label>`;
  const selected = page.param("cell");
  return grid({
    title: `${cells.y} × ${cells.x}`, x: cells.x, y: cells.y, rows: cells.y_values, columns: cells.x_values,
    controls: html`<span class="row">${pick("y")}${pick("x")}</span>`,
    sentence: least < Infinity ? `Each number is how many % slower the cell’s best candidate was than the fastest screened, ${number(least)} µs. Choose one to find its candidates in the search.` : "",
    legend: [{ kind: "cool", text: "★", words: "served", heat: 0.55 }, { kind: "cool", text: "+9", words: "measured", heat: 0.3 }, { kind: "untried", text: "·", words: "worth trying, not tried" }, { kind: "untried", text: "✕", words: "failed" },
      { kind: "dull", text: "", words: "legal, not worth a try" }, { kind: "hatched", text: "", words: "illegal" }],
    cell: (row, column) => {
      const [down, across] = [cells.y_values[row], cells.x_values[column]];
      const named = `${down},${across}`;
      const held = best.get(named);
      const chosen = () => { got.made = {}; page.set({ cell: selected === named ? "" : named }); };
      const state = cells.state[row][column];
      const star = winner[cells.y] === down && winner[cells.x] === across;
      if (star && !(held && held < Infinity)) return { kind: "cool", text: "★", heat: 0.6, hint: "served, not screened here" };
      if (held === Infinity) return { kind: "untried", text: "✕", hint: "all that was tried failed" };
      if (held) {
        const slower = (held / least - 1) * 100;
        return { kind: "cool", text: `${star ? "★" : "+"}${slower < 0.5 && star ? "" : slower.toFixed(0)}`, heat: Math.max(0.08, 0.6 - slower / 60),
          hint: `${cells.y}=${down} ${cells.x}=${across}: ${number(held)} µs, ${slower.toFixed(1)} % slower than the fastest`, chosen, pressed: selected === named };
      }
      const expected = cells.expected_us[row][column];
      if (state === "worth") return { kind: "untried", text: "·", hint: `worth trying, not tried${expected ? `, expected ${number(expected)} µs` : ""}` };
      const rule = cells.rule[row][column];
      return state === "illegal" ? { kind: "hatched", text: "", hint: `illegal: ${rule ?? "a rule"}` } : { kind: "dull", text: "", hint: `not worth it: most break ${rule ?? "a rule"}` };
    },
  });
}

/** Fastest screened time of each cell, infinite where all failed. @param {any} table @param {any} cells @returns {Map<string, number>} */
function fastest(table, cells) {
  const best = new Map();
  if (!table?.rows) return best;
  const { columns, configs } = table;
  const [x, y] = [configs.knobs[cells.x], configs.knobs[cells.y]];
  if (!x || !y) return best;
  // Of each config first: they are far fewer than measurements.
  const least = new Float64Array(configs.id.length).fill(NaN);
  const screen = columns.stage.values.indexOf("screen");
  for (let row = 0; row < table.rows; row++) {
    const time = columns.median_us[row] ?? Infinity;
    if (columns.stage.at[row] === screen && !(least[columns.config[row]] <= time)) least[columns.config[row]] = time;
  }
  least.forEach((time, config) => {
    if (isNaN(time) || cell(configs.family, config) !== cells.family) return;
    const place = `${cell(y, config)},${cell(x, config)}`;
    if (!(best.get(place) <= time)) best.set(place, time);
  });
  return best;
}
