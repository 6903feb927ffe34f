// Explain: why can't I? Every value of every knob is marked before one picks it.

import { knobsOf, written } from "../lib/configs.js";
import { bytes, number, percent, whole } from "../lib/format.js";
import { latest } from "../lib/page.js";
import { html, nothing } from "../lib/view.js";
import { devicePicker, devicesOf } from "../parts/devices.js";
import { problemOf, shapeBox } from "../parts/shape.js";

const STATES = /** @type {Record<string, [string, string]>} */ ({
  legal: ["", "worth trying"], not_worth: ["◇ ", "legal, not worth a try"], illegal: ["✕ ", "illegal"], mends: ["✓ ", "mends it"], same: ["", "changes nothing about that"],
});
const TOKENS = ["mark", "other", "tie", "soft"];

/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  page.title("Explain");
  const [{ key, P, text }, { device: tuned, all }] = await Promise.all([problemOf(page), devicesOf(page)]);
  const device = tuned || all[0].name;
  // Without knobs in the address, the best known config is the one to change.
  let [start, answer] = /** @type {any[]} */ ([]);
  let asked = 0;
  const knobs = () => (start && !page.param("knobs") ? start.knobs : knobsOf(page.param("knobs")));
  const ask = async () => {
    const turn = ++asked;
    const family = page.param("family") || (page.param("knobs") ? "" : start?.family);
    const found = await page.post("/v1/explain:neighbours", { problem: P, knobs: knobs(), ...(family && { family }), device });
    if (turn !== asked) return;
    answer = found;
    page.redraw();
  };
  const begin = latest(async () => {
    const best = page.param("knobs") ? null : (await page.get("/v1/best", { ...P, device }).catch(() => null))?.config;
    start = best && best.family !== "cublaslt" && best.family === page.param("family", best.family) ? best : null;
    await ask();
  });
  const take = (/** @type {Record<string, string | number>} */ change) => {
    const { family, knobs } = answer.config;
    page.set({ family, knobs: written({ family, knobs: { ...knobs, ...change } }) }, true);
    void ask();
  };
  page.show(() => html`<h1>Why can’t I?</h1>
    <p class="lead">Values that would break a rule are struck out before you pick them; hover over one, or pick it, to see which rule.${start && !page.param("knobs") ? " This is the best known config." : ""}</p>
    <div class="row">${shapeBox(page, text)}${devicePicker(page, all, device)}</div>
    ${answer ? html`<div class="halves"><section class="card">${controls(answer, take)}</section>
      <div class="stack"><section class="card" aria-live="polite" id="verdict">${verdict(answer, take)}</section>${resources(answer)}<section class="card">${derived(answer)}</section></div></div>` : nothing}`);
  await begin();
  page.live({ best: ({ problem = key }) => problem === key && void begin(), began: begin, hello: begin }, { device });
}

/** @param {any} answer @param {(change: Record<string, string | number>) => void} take */
function controls(answer, take) {
  const shown = answer.legal ? ["legal", "not_worth", "illegal"] : ["mends", "same", "illegal"];
  return html`<h2>${answer.config.family}</h2><p class="key">${shown.map((state) => html`<span><span class="chip ${state}">${STATES[state][0] || "▫"}</span> ${STATES[state][1]}</span>`)}</p>
    <div class="knobs">${answer.knobs.map((/** @type {any} */ knob) => html`<fieldset class="knob"><legend title=${knob.meaning ?? nothing}><code>${knob.name}</code>${knob.value === knob.default ? nothing : html` <span class="note">default ${knob.default}</span>`}</legend>
      <div class="chips">${knob.values.map((/** @type {any} */ entry) => {
        const state = stateOf(entry, answer);
        const [sign, words] = STATES[state];
        const said = `${words}${entry.rules.length ? `: ${entry.rules.join(", ")}` : ""}`;
        return html`<button type="button" class="chip ${state}" aria-pressed=${String(entry.current)} title=${said} aria-label=${`${knob.name} ${entry.value}, ${said}`}
          @click=${() => take({ [knob.name]: entry.value })}>${sign}${state === "illegal" ? html`<s>${entry.value}</s>` : entry.value}</button>`;
      })}</div></fieldset>`)}</div>`;
}

/** While the config is illegal, a value counts by what it changes: does it mend the config, or break another rule? @param {any} entry @param {any} answer */
function stateOf(entry, answer) {
  if (answer.legal) return entry.state;
  if (entry.state !== "illegal") return "mends";
  const broken = new Set(answer.broken.map((/** @type {any} */ rule) => rule.rule));
  return entry.rules.every((/** @type {string} */ rule) => broken.has(rule)) ? "same" : "illegal";
}

/** @param {any} answer @param {(change: Record<string, string | number>) => void} take */
function verdict(answer, take) {
  const broken = (/** @type {any} */ rule, /** @type {string} */ kind) => html`<li class="broken"><a class=${kind} href=${`/rules?id=${encodeURIComponent(rule.rule)}&family=${answer.config.family}`}>${rule.rule}</a>
    <span>${rule.sentence}</span><code>${rule.numbers}</code><span class="note">${rule.source}</span></li>`;
  return !answer.judged ? html`<h2>${answer.config.family} alone knows what is legal</h2>` : html`<h2 class=${answer.legal ? (answer.not_worth.length ? "tied" : "gain") : "loss"}>${answer.legal ? (answer.not_worth.length ? "◇ Legal, not worth a try" : "✓ Legal, and worth trying") : "✕ Illegal"}</h2>
    ${answer.expected_us ? html`<p class="sentence">The analytic model estimates ${number(answer.expected_us)} µs.</p>` : nothing}
    <ul class="plain">${answer.broken.map((/** @type {any} */ rule) => broken(rule, "loss"))}${answer.not_worth.map((/** @type {any} */ rule) => broken(rule, "tied"))}</ul>
    ${answer.nearest && answer.change ? html`<p class="row centre"><strong>Nearest legal change:</strong> <code>${answer.change}</code>
      <button type="button" @click=${() => take(answer.nearest.knobs)}>Take it</button></p>` : nothing}`;
}

/** @param {any} answer */
function derived(answer) {
  const shown = (/** @type {string} */ name, /** @type {number} */ value) => (name.endsWith("_bytes") ? bytes(value) : number(value, 9));
  return html`<h2>What follows from it</h2><table><caption class="visually-hidden">Derived values</caption><tbody>${Object.entries(answer.derived).map(([name, value]) => html`
    <tr><th scope="row"><code>${name}</code></th><td class="num">${shown(name, Number(value))}</td></tr>`)}</tbody></table>
    <p class="says">These values follow from the knobs and the problem; nobody chooses them.</p>`;
}

/** Shared memory and registers of a config, stacked against their limits. @param {any} answer of explain:neighbours */
function resources(answer) {
  const { smem, registers } = answer;
  if (!smem && !registers) return nothing;
  return html`<section class="card">
    ${smem ? stack("Shared memory of a block", smem.parts.map((/** @type {any} */ part) => [part.name, part.bytes, bytes(part.bytes)]), smem.used_bytes, smem.limit_bytes, bytes) : nothing}
    ${registers ? stack("Registers of an SM", [[registers.per_thread ? `${registers.per_thread} a thread` : "all threads", registers.used, whole(registers.used)]], registers.used, registers.limit, whole) : nothing}
    ${registers?.held ? stack("Registers a thread holds for its sums", [["accumulators and operands", registers.held, whole(registers.held)]], registers.held, registers.most_per_thread, whole) : nothing}
  </section>`;
}

/** @param {string} title @param {[string, number, string][]} parts @param {number} used @param {number} limit @param {(value: number) => string} written */
function stack(title, parts, used, limit, written) {
  const full = Math.max(used, limit) * 1.04;
  const over = used > limit;
  return html`<figure class="resource"><figcaption><h2>${title}</h2><span class=${over ? "loss" : "gain"}>${over ? "✕" : "✓"} ${written(used)} of ${written(limit)} (${percent(used / limit)})</span></figcaption>
    <div class="stacked" role="img" aria-label=${`${parts.map(([name, , text]) => `${name} ${text}`).join(", ")}; the limit is ${written(limit)}`}>
      ${parts.map(([, size], place) => html`<i .style=${`width:${(size / full) * 100}%;background:var(--${TOKENS[place % TOKENS.length]})`}></i>`)}
      <b .style=${`left:${(limit / full) * 100}%`}></b></div>
    <p class="key">${parts.map(([name, , text], place) => html`<span><i class="swatch marks" .style=${`--swatch:var(--${TOKENS[place % TOKENS.length]})`}></i>${name} ${text}</span>`)}<span>│ limit</span></p></figure>`;
}
