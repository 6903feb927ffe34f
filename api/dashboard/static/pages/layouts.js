// Layouts: what lies where in shared memory, in registers, and in descriptors?

import { address, picture, Refusal } from "../lib/api.js";
import { knobsOf } from "../lib/configs.js";
import { titleOfKey } from "../lib/problem.js";
import { html, nothing } from "../lib/view.js";
import { headline } from "../parts/facts.js";
import { ownLinks } from "../parts/own_layouts.js";
import { problemOf } from "../parts/shape.js";

const TILE = /** @type {[string, string, (string[] | string)?][]} */ ([["mode", "128B", "swizzles"], ["rows", "8"], ["cols", "64"], ["dtype", "bf16"], ["box_cols", ""]]);
/** What each kind shows, and its parameters: name, default, choices; a name instead of choices is a list of the service. */
const KINDS = /** @type {Record<string, {title: string, says: string, parameters: [string, string, (string[] | string)?][]}>} */ ({
  swizzle: { title: "Swizzle", says: "Each cell is a 16-byte chunk of the tile, where the swizzle puts it; columns are banks.", parameters: TILE },
  boxes: { title: "TMA boxes", says: "TMA copies the tile box by box; each box says at which byte it lands.", parameters: [...TILE, ["major", "k", ["k", "mn"]]] },
  banks: { title: "Bank conflicts", says: "Lanes of one colour are served in one wavefront; more than the ideal number is a conflict.", parameters: [["pattern", "ldmatrix.x4", "patterns"], ...TILE, ["row", "0"], ["column", "0"]] },
  fragment: { title: "Fragments", says: "Each cell names the thread and the register that hold the element.", parameters: [["instruction", "wgmma.m64n64k16", "fragments"], ["operand", "D", ["A", "B", "C", "D"]], ["dtype", ""], ["thread", ""]] },
  scales: { title: "Scale factors", says: "Each cell names the scale that tensor memory holds there.", parameters: [["vector", "1X", ["1X", "2X", "4X"]], ["rows", "128"], ["sf_id", "0"]] },
  descriptor: { title: "Matrix descriptor", says: "The bits of the word, field by field.", parameters: [["target", "wgmma", ["wgmma", "tcgen05"]], ["word", ""], ["start", "0"], ["leading", "16"], ["stride", "1024"], ["mode", "128B", "swizzles"]] },
  instruction: { title: "Instruction descriptor", says: "The bits of the word, field by field.", parameters: [["kind", "f16", "instruction_kinds"], ["word", ""], ["m", "128"], ["n", "256"]] },
});

/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  page.title("Layouts");
  const name = page.param("layout", "swizzle");
  const layout = KINDS[name];
  if (!layout) throw new Refusal(404, `There is no layout “${name}”: choose ${Object.keys(KINDS).join(", ")}.`);
  const [words, own] = /** @type {any[]} */ (await Promise.all([page.get("/v1/layouts"), ownConfig(page)]));
  /** @type {{svg: SVGElement | null, table: any, wrong: string}} */
  const got = { svg: null, table: null, wrong: "" };
  const asked = () => Object.fromEntries(layout.parameters.map(([parameter]) => [parameter, page.param(parameter)]));
  const choices = (/** @type {string[] | string | undefined} */ of) => (Array.isArray(of) ? of : of ? (Array.isArray(words[of]) ? words[of] : Object.keys(words[of])) : null);
  let turn = 0;
  const load = async () => {
    const mine = ++turn;
    const path = `/v1/layouts/${name}`;
    const [svg, table] = await Promise.allSettled([picture(address(path, { ...asked(), format: "svg" })), page.get(path, { ...asked(), format: "json" })]);
    if (mine !== turn || page.signal.aborted) return;
    got.svg = svg.status === "fulfilled" ? svg.value : null;
    got.table = table.status === "fulfilled" ? table.value : null;
    got.wrong = table.status === "rejected" ? table.reason.message : "";
    page.redraw();
  };
  const change = (/** @type {any} */ event) => { page.set({ [event.target.name]: event.target.value }); void load(); };
  page.show(() => html`<h1>What lies where?</h1>
    <p class="lead">The functions that lay out the kernels and check the rules draw these pictures.</p>
    ${own ? html`<section class="card"><h2>${headline(own.config)}</h2><p class="soft"><a href=${`/problem?${new URLSearchParams({ key: own.problem.key, device: page.param("device") })}`}>${titleOfKey(own.problem.key)}</a></p>${ownLinks(own, page.query)}</section>` : nothing}
    <div class="row" role="group" aria-label="Kind of layout">${Object.entries(KINDS).map(([kind, { title }]) => html`<a class="tab" aria-current=${kind === name ? "true" : nothing} href=${`/layouts?layout=${kind}`}>${title}</a>`)}</div>
    <form class="row" @submit=${(/** @type {Event} */ event) => event.preventDefault()}>${layout.parameters.map(([parameter, usual, of]) => {
      const values = choices(of);
      const now = page.param(parameter, usual);
      return html`<label>${parameter}${values ? html`<select name=${parameter} @change=${change}>${values.map((/** @type {string} */ value) => html`<option ?selected=${value === now}>${value}</option>`)}</select>`
        : html`<input name=${parameter} size="9" .value=${page.param(parameter)} placeholder=${usual || "none"} @change=${change}>`}</label>`;
    })}</form>
    ${name === "banks" ? html`<p class="note">${words.patterns[page.param("pattern", "ldmatrix.x4")]}</p>` : nothing}
    ${got.wrong ? html`<p class="sentence loss" role="status">✕ ${got.wrong}</p>` : nothing}
    ${got.svg ? html`<section class="card"><figure class="drawing"><div class="scroll" tabindex="0" role="region" aria-label=${`${layout.title}: the picture`}>${got.svg}</div>
      <p class="says">${layout.says} The numbers are below.</p></figure></section>` : nothing}
    ${got.table ? html`<section class="card"><details ?open=${!got.svg}><summary>As numbers</summary>${asNumbers(got.table)}</details></section>` : nothing}`);
  await load();
}

/** The config that the address names, if any. @param {import("../lib/page.js").Page} page */
async function ownConfig(page) {
  if (!page.param("knobs") || !page.param("problem")) return null;
  const { P } = await problemOf(page);
  return page.post("/v1/explain", { problem: P, knobs: knobsOf(page.param("knobs")), ...Object.fromEntries(["family", "device"].map((name) => [name, page.param(name)]).filter(([, value]) => value)) });
}

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
