// Devices: which GPUs are known, and from where?

import { tableOf } from "../charts/table.js";
import { bytes, number, whole } from "../lib/format.js";
import { latest } from "../lib/page.js";
import { ranked } from "../parts/devices.js";
import { html } from "../lib/view.js";

/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  page.title("Devices");
  const most = (/** @type {any} */ limits) => Math.max(...Object.values(limits.tensor_tflops).map(Number));
  const load = latest(async () => {
    const items = ranked((await page.get("/v1/devices")).items);
    page.show(() => html`<h1>Which GPUs are known?</h1><p class="lead">Measured ceilings come from a real card, estimated ones from datasheets and the share that a measured card reaches of its own.</p>
      <section class="card">${tableOf("Devices", ["Device", "Arch", ["Bests"], "Ceilings", ["SMs"], ["Memory"], ["TB/s"], ["Most TFLOP/s"], ["L2"], ["W"]],
        items.map((/** @type {any} */ item) => { const limits = item.limits; return html`<tr><th scope="row"><a href=${`/device?${new URLSearchParams({ name: item.name })}`}>${item.name}</a></th>
          <td class="nowrap">${limits?.arch ?? "–"}</td><td class="num">${whole(item.bests)}</td><td class=${`nowrap ${limits?.measured ? "gain" : "soft"}`}>${limits ? (limits.measured ? "● measured" : "○ estimated") : "unknown"}</td><td class="num">${limits?.sm_count ?? "–"}</td>
          <td class="num">${limits ? bytes(limits.memory_bytes) : "–"}</td><td class="num">${limits ? limits.memory_tbs.toFixed(2) : "–"}</td><td class="num">${limits ? whole(most(limits)) : "–"}</td><td class="num">${limits ? bytes(limits.l2_bytes) : "–"}</td><td class="num">${number(limits?.power_w)}</td></tr>`; }))}
        <p class="says">A device with bests has been tuned or replayed here; the others answer by prediction.</p></section>`);
  });
  await load();
  page.live({ best: load, began: load, hello: load });
}
