import "../../charts/lines.js";
import { cell } from "../../lib/columns.js";
import { number, whole } from "../../lib/format.js";
import { html, nothing } from "../../lib/view.js";

/** Clock, power and energy of each measurement. @param {import("../../lib/page.js").Page} _page @param {any} got */
export function clocksCard(_page, got) {
  const table = got.measurements;
  if (!table?.rows) return html`<h2>Clock and power</h2>`;
  // A sample is shown: most values are never looked at.
  const [clock, power, throttle] = ["sm_mhz", "power_w", "throttled"].map((name) => (/** @type {number} */ row) => cell(table.columns[name], row));
  const step = Math.max(1, Math.ceil(table.rows / 2000));
  const rows = [];
  for (let row = 0; row < table.rows; row += step) if ((clock(row) ?? null) !== null) rows.push(row);
  if (!rows.length) return nothing;
  const joules = table.columns.product_joules.some((/** @type {number | null} */ value) => value !== null);
  const throttled = rows.filter(throttle).length;
  const energy = got.answer.evidence?.product_joules;
  return html`<chart-lines .data=${{
    title: "Clock and power", xName: "measurement", yName: "SM clock, MHz", x: rows.map((_, place) => place + 1),
    series: [{ name: "SM clock", unit: "MHz", token: "mark", kind: "line", y: rows.map(clock) },
      { name: "board power", unit: "W", token: "loss", kind: "line", right: true, dash: [6, 3], y: rows.map(power) }],
    sentence: `${throttled ? `${whole(throttled)} of ${whole(rows.length)} measurements were throttled: at the power limit a faster kernel lowers its own clock.` : "None was throttled."}${
      energy ? ` The winner takes ${number(energy * 1000)} mJ a product.` : joules ? "" : " This device reported no energy."}${step > 1 || table.sampled ? ` A sample: ${whole(rows.length)} of ${whole(table.total)} measurements.` : ""}`,
  }}></chart-lines>`;
}
