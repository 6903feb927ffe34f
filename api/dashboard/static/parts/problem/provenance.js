import { ago, clock, number } from "../../lib/format.js";
import { html, nothing } from "../../lib/view.js";

const NAMES = /** @type {Record<string, string>} */ ({
  device: "device", device_uuid: "GPU", driver: "driver", nvrtc: "NVRTC", cublaslt: "cuBLASLt", kernel_source_digest: "kernel source", gemmtune: "gemmtune", seed: "seed",
});

/** Where the number comes from. @param {import("../../lib/page.js").Page} _page @param {any} got */
export function provenanceCard(_page, got) {
  const { evidence } = got.answer;
  if (!evidence) return nothing;
  const rows = [...Object.entries(NAMES).map(([name, words]) => [words, evidence.provenance[name]]), ["build", evidence.build_digest], ["reference", evidence.verification?.reference],
    ["samples", `${evidence.samples_us.length} under ${evidence.policy}`], ["measurement", `#${evidence.measurement_id} of study ${evidence.study_id}`],
    ["taken", `${clock(evidence.taken_at)} UTC, ${ago(evidence.taken_at)}`]];
  return html`<h2>Provenance</h2><table><caption class="visually-hidden">Provenance</caption><tbody>${rows.filter(([, value]) => value).map(([name, value]) => html`
    <tr><th scope="row" class="soft">${name}</th><td class="mono long">${String(value).length > 40 ? String(value).slice(0, 24) + "…" : value}</td></tr>`)}</tbody></table>
    ${evidence.note ? html`<p class="says">${evidence.note}.</p>` : nothing}`;
}

/** Every change of the best. @param {import("../../lib/page.js").Page} _page @param {any} got */
export function historyCard(_page, got) {
  const items = got.history?.items;
  if (!items?.length) return nothing;
  return html`<h2>History of the best</h2><div class="scroll tall" tabindex="0" role="region" aria-label="History of the best"><table>
    <thead><tr><th scope="col">When, UTC</th><th scope="col">Policy</th><th scope="col" class="num">µs</th><th scope="col">Why</th></tr></thead>
    <tbody>${items.toReversed().map((/** @type {any} */ item) => html`<tr><td>${clock(item.at)}</td><td>${item.policy}</td>
      <td class="num">${item.measurement_id && item.previous_id ? html`<a href=${`/compare?a=${item.measurement_id}&b=${item.previous_id}`}>${number(item.median_us)}</a>` : number(item.median_us)}</td>
      <td>${item.reason}</td></tr>`)}</tbody></table></div>
    <p class="says">A slower best replaces a faster one only when the faster program is gone.</p>`;
}
