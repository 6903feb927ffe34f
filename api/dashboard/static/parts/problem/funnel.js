import { bars } from "../../charts/bars.js";
import { count } from "../../lib/format.js";
import { html, nothing } from "../../lib/view.js";

const STEPS = /** @type {Record<string, [string, string]>} */ ({
  product: ["product of all knobs", ""], legal: ["legal", "what the hardware and the kernel allow"], worth: ["worth trying", "not surely slower than another"],
  pool: ["pool", "ranked by the model"], measured: ["measured", "compiled, verified, timed"], correct: ["correct", "every element within its bound"],
  finals: ["finals", "timed in turn, with cuBLASLt"], served: ["served", ""],
});

/** How all configs became one. @param {import("../../lib/page.js").Page} page @param {any} got */
export function funnelCard(page, got) {
  const { funnel } = got;
  if (!funnel?.steps) return funnel?.refused ? html`<h2>From all configs to one</h2><p class="note">${funnel.refused}</p>` : html`<h2>From all configs to one</h2>`;
  const steps = funnel.steps.filter((/** @type {any} */ step) => step.count !== null || step.name === "legal");
  const uncounted = steps.some((/** @type {any} */ step) => step.count === null);
  const ask = async () => {
    got.funnel = await page.get("/v1/funnel", { ...paramsOf(funnel, got), legal: true });
    got.made = {};
    page.redraw();
  };
  const product = funnel.steps[0].count;
  return html`${bars({
    title: `From ${count(product)} to one`, log: true,
    sentence: `Rules removed all but ${count(steps.find((/** @type {any} */ step) => step.name === "worth")?.count)} configs before anything ran; the GPU saw ${
      count(steps.find((/** @type {any} */ step) => step.name === "measured")?.count)}. Lengths are logarithmic.`,
    bars: steps.map((/** @type {any} */ step) => ({ name: STEPS[step.name]?.[0] ?? step.name, value: step.count, note: STEPS[step.name]?.[1],
      text: step.count === null ? "not counted" : undefined, token: step.name === "served" ? "gain" : "mark" })),
  })}${uncounted ? html`<button type="button" class="quiet small" @click=${ask}>Count the legal ones (some seconds)</button>` : nothing}
    <a class="note" href=${`/space?${new URLSearchParams({ problem: got.key, device: got.device })}`}>Which rule removes how many?</a>`;
}

/** @param {any} funnel @param {any} got */
const paramsOf = (funnel, got) => {
  const { m, n, k, dtype, layout, batch, epilogue, kind } = funnel.problem;
  return { m, n, k, dtype, layout, batch, epilogue, kind, device: got.device };
};
