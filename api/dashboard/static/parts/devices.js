// Which device a page is about.

import { whole } from "../lib/format.js";
import { html } from "../lib/view.js";
import { goWith } from "./shape.js";

/** Devices with bests first, then those with measured ceilings. @param {any[]} items */
export const ranked = (items) => items.toSorted((a, b) => b.bests - a.bests || Number(b.limits?.measured ?? 0) - Number(a.limits?.measured ?? 0) || a.name.localeCompare(b.name));

/**
 * The devices with bests, and the one that the URL names or the first; none in an empty store.
 * @param {import("../lib/page.js").Page} page
 * @returns {Promise<{device: string, devices: {name: string, bests: number}[], all: {name: string, bests: number}[]}>} `all` has those without bests, too
 */
export async function devicesOf(page) {
  const all = ranked((await page.get("/v1/devices")).items);
  const devices = all.filter((/** @type {any} */ item) => item.bests);
  const asked = page.param("device");
  // The service knows common names.
  const known = all.find((/** @type {any} */ item) => item.name === asked) ?? (asked ? await page.get(`/v1/devices/${encodeURIComponent(asked)}`) : undefined);
  if (known && known.name !== asked) page.set({ device: known.name });
  return { device: known?.name ?? devices[0]?.name ?? "", devices, all };
}

/** @param {import("../lib/page.js").Page} page @param {{name: string, bests: number}[]} devices @param {string} device */
export function devicePicker(page, devices, device) {
  return html`<label>Device <select name="device" @change=${(/** @type {any} */ event) => goWith(page, { device: event.target.value })}>${devices.map((item) => html`
    <option value=${item.name} ?selected=${item.name === device}>${item.name}${item.bests ? ` (${whole(item.bests)})` : ""}</option>`)}</select></label>`;
}
