// Device: what is this GPU, and did answers drift?

import "../charts/lines.js";
import { bars } from "../charts/bars.js";
import { tableOf } from "../charts/table.js";
import { Refusal } from "../lib/api.js";
import { bytes, clock, count, number } from "../lib/format.js";
import { latest } from "../lib/page.js";
import { html, nothing } from "../lib/view.js";

const TITLES = /** @type {Record<string, string>} */ ({ driver: "driver", nvrtc: "NVRTC", kernels: "kernels", cublaslt: "cuBLASLt" });

/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  const name = page.param("name") || page.param("device");
  if (!name) throw new Refusal(404, "The address names no device: choose one on the page Devices.");
  page.title(name);
  const path = `/v1/devices/${encodeURIComponent(name)}`;
  /** @type {any} */
  let drift = null;
  const load = latest(async () => {
    const device = await page.get(path);
    const { limits } = device;
    page.show(() => html`<h1>${device.name}</h1>
      <p>${limits ? html`<span class="badge ${limits.measured ? "measured" : "predicted"}">${limits.measured ? "measured ceilings" : "estimated ceilings"}</span> ${limits.arch}` : "Nothing is known of its limits."} · ${count(device.bests)} bests
        ${device.bests ? html`· <a href=${`/problems?${new URLSearchParams({ device: device.name })}`}>its problems</a>` : nothing}</p>
      <div class="halves"><div class="stack">${limits ? html`<section class="card">${bars({ title: "Ceilings of the tensor cores", sentence: "TFLOP/s (TOP/s for integers) that a perfect kernel reaches on this card. Roofline bounds are made of them.",
        bars: Object.entries(limits.tensor_tflops).map(([dtype, most]) => ({ name: dtype, value: Number(most), text: number(Number(most)) })) })}</section>` : nothing}
        ${drift ? drifted(drift) : nothing}</div>
      ${limits ? html`<section class="card">${table(limits)}</section>` : nothing}</div>`);
    if (device.bests) drift = await page.get(`${path}/drift`).catch(refused);
    page.redraw();
  });
  await load();
  page.live({ best: load, began: load, hello: load }, { device: name });
}

/** A refusal leaves that card out. @param {unknown} error */
function refused(error) {
  if (!(error instanceof Refusal)) throw error;
  return null;
}

/** @param {any} limits */
function table(limits) {
  const shown = (/** @type {string} */ name, /** @type {any} */ value) => (name.endsWith("_bytes") ? bytes(value) : typeof value === "number" ? number(value) : Array.isArray(value) ? value.join(".") : typeof value === "object" && value
    ? Object.entries(value).map(([key, part]) => `${key}: ${number(Number(part))}`).join(", ") : String(value));
  return html`<h2>Limits, and where each comes from</h2>${tableOf("Limits", ["Limit", ["Value"], "Source"],
      Object.entries(limits).filter(([name]) => !["name", "sources", "measured", "arch", "tensor_tflops"].includes(name)).map(([name, value]) => html`
      <tr><th scope="row"><code>${name}</code></th><td class="num">${shown(name, value)}</td><td class="note">${limits.sources[name] ?? ""}</td></tr>`))}`;
}

/** @param {any} drift */
function drifted(drift) {
  const { programs, changes } = drift;
  const told = (/** @type {any} */ program) => Object.entries(TITLES).filter(([key]) => program[key]).map(([key, words]) => `${words} ${String(program[key]).slice(0, 12)}`).join(", ");
  const chart = { title: "Drift", x: changes.map((/** @type {any} */ change) => new Date(change.at).getTime() / 1000), xName: "when", yName: "new time over old", formatX: (/** @type {number} */ second) => clock(second).slice(5, 16),
    series: [{ name: "new time over old", token: "mark", kind: "line", y: changes.map((/** @type {any} */ change) => change.geometric_mean) }],
    sentence: "Above 1 the same problems became slower with the new driver, compiler, library or kernels." };
  return html`${changes.length ? html`<section class="card"><chart-lines .data=${chart}></chart-lines></section>` : nothing}
    <section class="card"><h2>Programs that measured here</h2>${tableOf("Programs", ["Program", ["Bests"], "From, UTC", "To"],
      programs.map((/** @type {any} */ program) => html`<tr><th scope="row">${told(program)}</th><td class="num">${count(program.bests)}</td><td>${clock(program.first_at)}</td><td>${clock(program.last_at)}</td></tr>`))}
      <p class="says">${changes.length ? `${changes.length} changes of driver, compiler, library or kernels had problems measured before and after.` : "No problem was measured before and after a change: there is no drift to see."}</p></section>`;
}
