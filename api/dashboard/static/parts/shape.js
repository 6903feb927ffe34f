// The problem that a page is about, kept as its key in the URL, and a box to type another one.

import { keyOf, parameters, parse, problemFields, spelled } from "../lib/problem.js";
import { go, html } from "../lib/view.js";

const EXAMPLE = "gemm:bf16,bf16,bf16,f32:nt:4096x4096x4096:b1:none";

/**
 * @param {import("../lib/page.js").Page} page
 * @returns {Promise<{key: string, P: Record<string, string | number>, text: string}>}
 */
export async function problemOf(page) {
  const key = page.param("problem", EXAMPLE);
  const fields = await problemFields(page, key);
  return { key, P: parameters(fields), text: spelled(fields) };
}

/** @param {import("../lib/page.js").Page} page @param {string} text */
export function shapeBox(page, text) {
  const take = (/** @type {any} */ event) => {
    event.preventDefault();
    const input = event.target.elements.shape;
    const fields = parse(input.value);
    input.setCustomValidity(typeof fields === "string" ? fields : "");
    input.reportValidity();
    if (typeof fields !== "string") goWith(page, { problem: keyOf(fields) });
  };
  return html`<form class="row" @submit=${take}><label>Problem
    <input name="shape" class="mono" size="34" .value=${text} spellcheck="false" autocomplete="off" @input=${(/** @type {any} */ event) => event.target.setCustomValidity("")}></label>
    <button class="quiet">Show</button></form>`;
}

/** Opens the page with other parameters. @param {import("../lib/page.js").Page} page @param {Record<string, string>} changes */
export function goWith(page, changes) {
  const query = new URLSearchParams(page.query);
  for (const [name, value] of Object.entries(changes)) value ? query.set(name, value) : query.delete(name);
  go(`${page.path}?${query}`);
}
