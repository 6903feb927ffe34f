import "../../charts/strips.js";
import { names } from "../../lib/configs.js";
import { html, nothing } from "../../lib/view.js";

const SENTENCES = /** @type {Record<string, string>} */ ({
  rounds: "All ran in turn, at one clock.", sustained: "Each ran alone, at the clock its own power leaves.", burst: "Each ran after a rest.",
  chain: "Each sample times the product and a short kernel before it.", chain_pdl: "Each product may start before the kernel in front of it ends.",
});

/** Every sample of every finalist. @param {import("../../lib/page.js").Page} page @param {any} got */
export function finalsCard(page, got) {
  const finals = got.study?.finals;
  if (!finals) return html`<h2>Finals</h2>`;
  if (!finals.length) return html`<h2>Finals</h2><p class="note">None yet.</p>`;
  const policies = [...new Set(finals.map((/** @type {any} */ final) => final.policy))];
  const policy = [page.param("finals"), got.answer.evidence?.policy, ...policies].find((name) => policies.includes(name));
  const here = finals.filter((/** @type {any} */ final) => final.policy === policy && final.samples_us.length);
  const labels = names(here.map((/** @type {any} */ final) => final.config));
  const winner = got.answer.evidence?.measurement_id;
  const strips = here.map((/** @type {any} */ final, /** @type {number} */ place) => ({
    name: labels[place], samples: final.samples_us, median: final.median_us, note: noteOf(final),
    kind: final.served ? "served" : final.library ? "library" : final.tied ? "tied" : "slower",
    href: winner && final.measurement_id !== winner ? `/compare?a=${winner}&b=${final.measurement_id}` : undefined,
  }));
  const least = Math.min(...strips.map((/** @type {any} */ strip) => strip.median));
  const pick = got.study.picks.find((/** @type {any} */ entry) => entry.policy === policy);
  const tabs = policies.length < 2 ? nothing : html`<span role="group" aria-label="Policy">${policies.map((name) => html`
    <button type="button" class="tab small" aria-pressed=${String(name === policy)} @click=${() => { got.made = {}; page.set({ finals: name }); }}>${name}</button>`)}</span>`;
  return html`${tabs}<chart-strips .data=${{
    title: `Finals under ${policy}`, strips, unit: "µs", band: [least, least * (1 + got.study.tie_bands[policy])],
    sentence: `${SENTENCES[policy] ?? ""} Ticks are samples, marks medians. The shaded band is a tie’s width; ties are judged turn by turn.${
      pick ? ` The pick is ${pick.sentence.replaceAll("%", " %").replaceAll("  ", " ")}.` : ""}`,
  }}></chart-strips>`;
}

/** @param {any} final */
function noteOf(final) {
  const behind = final.behind ? `${(final.behind * 100).toFixed(1)} % behind` : final.behind === 0 && "the fastest";
  return [final.served && "served", behind, final.tied && "tied", final.surely_slower && !final.tied && "surely slower", final.revoked && "revoked"].filter(Boolean).join(", ");
}
