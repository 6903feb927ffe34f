// Ladders: does one weight behave at every M?

import "../charts/lines.js";
import { tableOf } from "../charts/table.js";
import { address } from "../lib/api.js";
import { fixed, many, percent, us } from "../lib/format.js";
import { latest } from "../lib/page.js";
import { headline } from "../parts/facts.js";
import { go, html, nothing } from "../lib/view.js";
import { devicesOf } from "../parts/devices.js";

const SOURCES = /** @type {Record<string, [string, string]>} */ ({ measured: ["gain", "●"], stale: ["tie", "†"], recorded: ["other", "▲"], nearest: ["tie", "◆"], predicted: ["mark", "○"], none: ["loss", "✕"] });
const SHAPES = /** @type {Record<string, string>} */ ({ measured: "dot", stale: "slower", recorded: "faster", nearest: "tied", predicted: "ring" });
const FIELDS = ["n", "k", "dtype", "layout", "batch", "epilogue"];
const fieldsOf = (/** @type {any} */ weight) => Object.fromEntries(FIELDS.map((name) => [name, weight[name] ?? weight.example[name] ?? ""]));

/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  page.title("Ladders");
  page.show(() => html`<h1>Does one weight behave at every M?</h1>`);
  let { device } = await devicesOf(page);
  const asked = Object.fromEntries(FIELDS.map((name) => [name, page.param(name)]));
  const choose = (/** @type {any} */ event) => go(`/ladder${event.target.value}`);
  const load = latest(async () => {
    device ||= (await devicesOf(page)).device;
    const { items: weights } = device ? await page.get("/v1/weights", { device }) : { items: [] };
    const example = /** @type {any} */ (weights[0]);
    if (!asked.n && !example) return page.show(() => html`<h1>Does one weight behave at every M?</h1><p class="sentence">Nothing is measured${device && ` on ${device}`} yet. A ladder: <code>gemmtune campaign run --ladder 'm=1..8192:x2 n=4096 k=4096'</code></p>`);
    // Chosen once: what is measured meanwhile changes no weight that is looked at.
    if (!asked.n) Object.assign(asked, fieldsOf(example));
    const answer = await page.get("/v1/ladder", { ...asked, m: 1, device: device || undefined, ms: page.param("ms") });
    const made = chart(answer, asked, device);
    page.show(() => html`<h1>Does one weight behave at every M?</h1>
      <div class="row"><label>Weight <select @change=${choose}>${choices(weights, asked, device).map(([query, words, on]) => html`<option value=${query} ?selected=${on}>${words}</option>`)}</select></label></div>
      <section class="card"><chart-lines .data=${made}></chart-lines></section>
      <section class="card"><h2>${answer.cliffs.length ? `✕ ${many(answer.cliffs.length, "contradiction")}` : "✓ No contradictions"}</h2>
        ${answer.cliffs.length ? html`<ul>${answer.cliffs.map((/** @type {any} */ cliff) => html`<li><strong>M = ${cliff.m}</strong>: ${cliff.sentence}</li>`)}</ul>` : nothing}
        <p class="says">A larger M can’t be faster: its kernel could run the smaller product, too.</p></section>
      ${strip(answer, device)}`);
  });
  await load();
  page.live({ best: load, began: load, hello: load }, { device });
}

/** All that tells a weight from others. @param {any} fields */
const named = ({ n, k, dtype, layout, batch, epilogue }) => [dtype || "bf16", layout || "nt", `N=${n} K=${k}`, batch > 1 && `b${batch}`, epilogue !== "none" && epilogue].filter(Boolean).join(" ");

/** @param {any[]} weights @param {any} asked @param {string} device @returns {[string, string, boolean][]} */
function choices(weights, asked, device) {
  const choice = (/** @type {any} */ fields, measured = "") => /** @type {[string, string, boolean]} */ ([address("", { ...fields, device }), named(fields) + measured, named(fields) === named(asked)]);
  const rows = weights.map((weight) => choice(fieldsOf(weight), ` (${weight.ms.length} measured)`));
  return rows.some(([, , on]) => on) ? rows : [choice(asked), ...rows];
}

/** @param {any} answer @param {any} asked @param {string} device */
function chart(answer, asked, device) {
  const { rungs } = answer;
  const of = (/** @type {string} */ source) => rungs.map((/** @type {any} */ rung) => (rung.source === source ? rung.time_us : null));
  const used = Object.keys(SOURCES).filter((source) => rungs.some((/** @type {any} */ rung) => rung.source === source && rung.time_us));
  return {
    title: named(asked), x: rungs.map((/** @type {any} */ rung) => rung.m), xName: "M", yName: "µs", logX: true, logY: true, tall: 340,
    series: [{ name: "best known", token: "ink", kind: "line", unit: "µs", y: rungs.map((/** @type {any} */ rung) => rung.time_us) },
      { name: "roofline bound", token: "soft", kind: "line", unit: "µs", dash: [4, 4], y: rungs.map((/** @type {any} */ rung) => rung.roofline_us) },
      ...used.map((source) => ({ name: source, token: SOURCES[source][0], kind: "marks", shape: SHAPES[source], unit: "µs", y: of(source) }))],
    sentence: `Time of the best known config at each M; both axes are logarithmic. ${used.length > 1 ? "Predicted and nearest points are estimated." : ""} ${answer.cliffs.length ? `Contradictions at M = ${answer.cliffs.map((/** @type {any} */ cliff) => cliff.m).join(", ")}.` : ""}`,
    text: (/** @type {number} */ place) => { const rung = rungs[place]; return `M = ${rung.m}: ${us(rung.time_us)}, ${rung.source}${rung.time_us ? `, ${percent(rung.roofline_us / rung.time_us)} of the bound` : ""}`; },
    href: (/** @type {number} */ place) => `/problem?${new URLSearchParams({ key: rungs[place].problem, device })}`,
  };
}

/** What changes from M to M. @param {any} answer @param {string} device */
function strip(answer, device) {
  const { rungs } = answer;
  return html`<section class="card"><h2>What changes with M</h2>${tableOf("What changes with M", [["M"], "Source", ["µs"], ["% of bound"], "Config", "Changed from the row above"],
      rungs.map((/** @type {any} */ rung, /** @type {number} */ place) => html`<tr><th scope="row" class="num"><a href=${`/problem?${new URLSearchParams({ key: rung.problem, device })}`}>${rung.m}</a></th><td class="nowrap">${SOURCES[rung.source]?.[1]} ${rung.source}</td><td class="num">${rung.time_us ? fixed(rung.time_us) : "–"}</td>
      <td class="num">${rung.time_us ? percent(rung.roofline_us / rung.time_us) : "–"}</td><td class="nowrap">${rung.config ? headline(rung.config) : "–"}</td><td>${place ? changed(rungs[place - 1].config, rung.config) : nothing}</td></tr>`))}
    <p class="says">A jump in time with many changes beside it is a border between kernels: look there first.</p></section>`;
}

/** Knobs that differ, as chips. @param {any} before @param {any} now */
function changed(before, now) {
  if (!before || !now) return nothing;
  if (before.family !== now.family) return html`<span class="chip"><span>family</span> <b>${now.family}</b></span>`;
  const names = Object.keys(now.knobs).filter((name) => now.knobs[name] !== before.knobs[name]);
  return html`<span class="chips tight">${names.map((name) => html`<span class="chip"><span>${name}</span> <b>${now.knobs[name]}</b></span>`)}</span>`;
}
