import { bars } from "../../charts/bars.js";
import { count } from "../../lib/format.js";
import { parameters } from "../../lib/problem.js";
import { html } from "../../lib/view.js";

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
    got.funnel = await page.get("/v1/funnel", { ...parameters(got.fields), device: got.device, legal: true });
    got.made = {};
    page.redraw();
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
