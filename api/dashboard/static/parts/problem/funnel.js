import "../../charts/changes.js";
import { bars } from "../../charts/bars.js";
import { count, whole } from "../../lib/format.js";
import { parameters } from "../../lib/problem.js";
import { html, nothing } from "../../lib/view.js";

const STEPS = /** @type {Record<string, [string, string]>} */ ({
  product: ["all configs", "product of all knobs"], legal: ["legal", "hardware can run them"], worth: ["worth trying", "no rule calls it slow"],
  pool: ["pool", "ranked by the model"], measured: ["measured", "compiled, verified, timed"], correct: ["correct", "every element verified"],
  finals: ["finals", "in turn with cuBLASLt"], served: ["served", "the answer"],
});

/** How all configs became one. @param {import("../../lib/page.js").Page} page @param {any} got */
export function funnelCard(page, got) {
  const { funnel } = got;
  if (!funnel?.steps) return funnel?.refused ? html`<h2>From all configs to one</h2><p class="note">${funnel.refused}</p>` : html`<h2>From all configs to one</h2>`;
  const steps = funnel.steps.filter((/** @type {any} */ step) => step.count !== null || step.name === "legal");
  const ask = async () => {
    Object.assign(got, { counting: true, made: {} });
    page.redraw();
    got.funnel = await page.get("/v1/funnel", { ...parameters(got.fields), device: got.device, legal: true }).finally(() => {
      Object.assign(got, { counting: false, made: {} });
      page.redraw();
    });
  };
  const counted = (/** @type {string} */ name) => count(steps.find((/** @type {any} */ step) => step.name === name)?.count);
  const product = funnel.steps[0].count;
  const removed = got.space?.families?.flatMap((/** @type {any} */ family) => family.removed) ?? [];
  const beside = (/** @type {string} */ name) => {
    const rules = removed.filter((/** @type {any} */ rule) => (rule.kind === "worth" ? "worth" : "legal") === name).length;
    return rules ? `after ${rules} ${name === "legal" ? "rules of legality" : "rules on speed"}` : STEPS[name]?.[1];
  };
  return html`${bars({
    title: `From ${count(product)} to one`, log: true,
    sentence: `Rules left ${counted("worth")} configs before anything ran; the GPU saw ${counted("measured")}. Lengths are logarithmic.`,
    bars: steps.map((/** @type {any} */ step) => ({ name: STEPS[step.name]?.[0] ?? step.name, value: step.count, beside: beside(step.name),
      text: step.count === null ? html`<button type="button" class="quiet small" title="Counting takes some seconds" ?disabled=${got.counting} @click=${ask}>${got.counting ? "…" : "Count"}</button>` : undefined, token: step.name === "served" ? "gain" : "mark" })),
  })}
    <a class="note" href=${`/space?${new URLSearchParams({ problem: got.key, device: got.device })}`}>Which rule removes how many?</a>`;
}

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

/** What each single change of the winner costs. @param {import("../../lib/page.js").Page} _page @param {any} got */
export function changesCard(_page, got) {
  const why = got.importance;
  if (!why) return html`<h2>One change at a time</h2><p class="note">Takes seconds.</p>`;
  if (why.refused) return html`<h2>One change at a time</h2><p class="note">${why.refused}</p>`;
  const shares = new Map(why.importances.map((/** @type {any} */ entry) => [entry.knob, entry.share]));
  const order = [...new Set(why.changes.map((/** @type {any} */ change) => change.knob))].sort((a, b) => (shares.get(b) ?? 0) - (shares.get(a) ?? 0));
  const knobs = order.map((name) => {
    const changes = why.changes.filter((/** @type {any} */ change) => change.knob === name && change.ratio !== null);
    const share = shares.get(name);
    return { name: `${name}=${why.winner.knobs[name] ?? "?"}`, share: share >= 0.01 ? `${(share * 100).toFixed(0)} %` : "",
      changes: changes.map((/** @type {any} */ change) => ({ ...change, measured: change.source === "measured" })) };
  }).filter((knob) => knob.changes.length);
  const illegal = why.changes.filter((/** @type {any} */ change) => change.source === "illegal").length;
  const top = order.filter((name) => (shares.get(name) ?? 0) >= 0.1);
  if (!knobs.length) return nothing;
  return html`<chart-changes .data=${{
    title: "One change at a time", knobs,
    sentence: `${top.length ? `${top.join(", ").replace(/, ([^,]*)$/, " and $1")} decided most. ` : ""}Each mark is the winner with one knob changed: ● measured, ○ expected with its 90 % interval. The ${illegal} illegal changes are left out. Left of “same” is faster. A share is how much of the spread of times that knob explains.`,
  }}></chart-changes>`;
}
