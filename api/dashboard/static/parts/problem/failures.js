import { bars } from "../../charts/bars.js";
import { whole } from "../../lib/format.js";
import { html, nothing } from "../../lib/view.js";

/** Outcomes of all candidates by family. @param {import("../../lib/page.js").Page} _page @param {any} got */
export function failuresCard(_page, got) {
  const table = got.measurements;
  if (!table?.rows) return nothing;
  const [{ outcome, config }, { family }] = [table.columns, table.configs];
  const tally = new Array(outcome.values.length * family.values.length).fill(0);
  for (let row = 0; row < table.rows; row++) tally[outcome.at[row] * family.values.length + family.at[config[row]]]++;
  const named = tally.map((number, place) => /** @type {[string, number]} */ ([
    `${outcome.values[Math.floor(place / family.values.length)]}, ${family.values[place % family.values.length]}`, number]));
  const rows = named.filter(([, number]) => number).sort((a, b) => b[1] - a[1]);
  const failed = rows.filter(([name]) => !name.startsWith("correct")).reduce((sum, [, number]) => sum + number, 0);
  const sample = table.sampled ? `, in a sample of ${whole(table.total)}` : "";
  return html`${bars({
    title: "Outcomes", sentence: failed ? `${whole(failed)} of ${whole(table.rows)} measurements failed${sample}. Failed kernels are kept as outcomes and never served.` : `All ${whole(table.rows)} measurements are correct${sample}.`,
    bars: rows.map(([name, value]) => ({ name, value, token: name.startsWith("correct") ? "gain" : "loss" })),
  })}${failed ? html`<a href=${`/failures?${new URLSearchParams({ problem: got.key, device: got.device })}`}>What failed, and how to repeat it</a>` : nothing}`;
}
