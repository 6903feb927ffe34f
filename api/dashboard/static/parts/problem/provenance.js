import "../../charts/lines.js";
import { cell } from "../../lib/columns.js";
import { ago, clock, number, whole } from "../../lib/format.js";
import { html, nothing } from "../../lib/view.js";
import { fact } from "../facts.js";

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

/** Clock, power and energy of each measurement. @param {import("../../lib/page.js").Page} _page @param {any} got */
export function clocksCard(_page, got) {
  const table = got.measurements;
  if (!table?.rows) return html`<h2>Clock and power</h2>`;
  // A sample is shown: most values are never looked at.
  const [clock, power, throttle] = ["sm_mhz", "power_w", "throttled"].map((name) => (/** @type {number} */ row) => cell(table.columns[name], row));
  const step = Math.max(1, Math.ceil(table.rows / 2000));
  const rows = [];
  for (let row = 0; row < table.rows; row += step) if (clock(row) != null) rows.push(row);
  if (!rows.length) return nothing;
  const throttled = rows.filter(throttle).length;
  // Lines between many measurements would be one block of colour.
  const kind = rows.length > 400 ? "marks" : "line";
  const lasting = throttled ? `${whole(throttled)} of ${whole(rows.length)} measurements were throttled: at the power limit a faster kernel lowers its own clock, so finals take turns.` : "None was throttled.";
  return html`<chart-lines .data=${{
    title: "Clock and power", xName: "measurement", yName: "SM clock, MHz", x: rows.map((_, place) => place + 1), tall: 290,
    series: [{ name: "SM clock", unit: "MHz", token: "mark", kind, y: rows.map(clock) },
      { name: "board power", unit: "W", token: "loss", kind, below: true, y: rows.map(power) }],
    sentence: `${lasting}${step > 1 || table.sampled ? ` A sample: ${whole(rows.length)} of ${whole(table.total)} measurements.` : ""}`,
  }}></chart-lines>${served(got.answer.evidence, got.study?.finals ?? [])}`;
}

/** What is served; joules are counted under one policy for all. @param {any} evidence @param {any[]} finals */
function served(evidence, finals) {
  const { clocks, config, median_us: time } = evidence ?? {};
  if (!clocks) return nothing;
  const joules = [evidence, ...finals].find((final) => final.config.key === config.key && final.product_joules && !final.revoked)?.product_joules;
  const energy = joules ?? (clocks.power_w ? clocks.power_w * time * 1e-6 : null);
  return html`<dl class="facts small">
    ${clocks.sm_mhz ? fact(`${number(clocks.sm_mhz)} MHz`, "SM clock, served") : nothing}
    ${clocks.power_w ? fact(`${number(clocks.power_w, 3)} W`, "board power") : nothing}
    ${clocks.temperature_c ? fact(`${clocks.temperature_c} °C`, "temperature") : nothing}
    ${energy ? fact(`${number(energy * 1000, 3)} mJ`, joules ? "per product, measured" : "per product, W × µs") : nothing}
    ${clocks.throttle_reasons.length ? fact(clocks.throttle_reasons.join(", "), "throttled by") : nothing}</dl>`;
}
