// Layouts: what lies where in shared memory, in registers, and in descriptors?

import { address, picture, Refusal } from "../lib/api.js";
import { html, nothing } from "../lib/view.js";

/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  page.title("Layouts");
  const { items } = await page.get("/v1/layouts");
  const kind = page.param("kind", "swizzle");
  const layout = items.find((/** @type {any} */ item) => item.kind === kind);
  if (!layout) throw new Refusal(404, "", `There is no layout “${kind}”: choose ${items.map((/** @type {any} */ item) => item.kind).join(", ")}.`, "");
  /** @type {{svg: SVGElement | null, table: any, wrong: string}} */
  const got = { svg: null, table: null, wrong: "" };
  const asked = () => Object.fromEntries(layout.parameters.map((/** @type {any} */ parameter) => [parameter.name, page.param(parameter.name)]));
  let turn = 0;
  const load = async () => {
    const mine = ++turn;
    const path = `/v1/layouts/${kind}`;
    const [svg, table] = await Promise.allSettled([picture(address(path, { ...asked(), format: "svg" })), page.get(path, { ...asked(), format: "json" })]);
    if (mine !== turn || page.signal.aborted) return;
    got.svg = svg.status === "fulfilled" ? svg.value : null;
    got.table = table.status === "fulfilled" ? table.value : null;
    got.wrong = table.status === "rejected" ? table.reason.message : "";
    page.redraw();
  };
  const change = (/** @type {any} */ event) => { page.set({ [event.target.name]: event.target.value }); void load(); };
  const go = (/** @type {string} */ query) => `/layouts?${query}`;
  page.show(() => html`<h1>What lies where?</h1>
    <p class="lead">The same functions lay out the kernels, check the rules and draw these pictures.</p>
    <div class="row" role="group" aria-label="Kind of layout">${items.map((/** @type {any} */ item) => html`<a class="tab" aria-current=${item.kind === kind ? "true" : nothing} href=${go(`kind=${item.kind}`)}>${item.title ?? item.kind}</a>`)}</div>
    <form class="row" @submit=${(/** @type {Event} */ event) => event.preventDefault()}>${layout.parameters.map((/** @type {any} */ parameter) => html`<label>${parameter.name}${parameter.values
      ? html`<select name=${parameter.name} @change=${change}>${parameter.values.map((/** @type {any} */ value) => html`<option ?selected=${String(value) === page.param(parameter.name, String(parameter.default ?? ""))}>${value}</option>`)}</select>`
      : html`<input name=${parameter.name} size="14" .value=${page.param(parameter.name)} placeholder=${parameter.default ?? ""} @change=${change}>`}</label>`)}</form>
    ${layout.examples?.length ? html`<p class="row centre note">Examples: ${layout.examples.map((/** @type {any} */ example) => html`<a href=${go(linkOf(kind, example))}>${wordsOf(example)}</a> `)}</p>` : nothing}
    ${got.wrong ? html`<p class="sentence loss" role="status">✕ ${got.wrong}</p>` : nothing}
    ${got.svg ? html`<section class="card"><figure class="drawing"><div class="scroll" tabindex="0" role="region" aria-label=${`${layout.title ?? kind}: the picture`}>${got.svg}</div>
      <p class="says">Each cell says what it holds; hover or read the table below for its numbers.</p></figure></section>` : nothing}
    ${got.table ? html`<section class="card"><details ?open=${!got.svg}><summary>As numbers</summary>${asNumbers(got.table)}</details></section>` : nothing}`);
  await load();
}

/** @param {string} kind @param {any} example */
const linkOf = (kind, example) => (typeof example === "string" ? example.replace(/^\?/, "") : String(new URLSearchParams({ kind, ...(example.parameters ?? example) })));

/** @param {any} example */
const wordsOf = (example) => (typeof example === "string" ? example : example.title ?? Object.values(example.parameters ?? example).join(" "));

/** @param {any} value a document of the service */
function asNumbers(value) {
  const entries = Object.entries(value);
  const flat = entries.filter(([, part]) => typeof part !== "object" || part === null);
  const deep = entries.filter(([, part]) => typeof part === "object" && part !== null);
  return html`<table><caption class="visually-hidden">Values</caption><tbody>${flat.map(([name, part]) => html`<tr><th scope="row"><code>${name}</code></th><td class="mono long">${String(part)}</td></tr>`)}</tbody></table>
    ${deep.map(([name, part]) => html`<h3><code>${name}</code></h3><pre tabindex="0" aria-label=${name}>${lines(part)}</pre>`)}`;
}

/** @param {any} part */
function lines(part) {
  if (Array.isArray(part)) return part.map((row) => (Array.isArray(row) ? row.map((cell) => String(typeof cell === "object" ? JSON.stringify(cell) : cell).padStart(4)).join(" ") : JSON.stringify(row))).join("\n");
  return JSON.stringify(part, null, 1);
}
