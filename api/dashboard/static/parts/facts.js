// Large numbers with what they mean below them; a config as chips.

import { number, percent, SIGNS, times, us, verdict } from "../lib/format.js";
import { html, nothing } from "../lib/view.js";

/** @param {string} value @param {string} words */
export const fact = (value, words) => html`<div><dt>${words}</dt><dd>${value}</dd></div>`;

/** A speed-up over a rival. @param {{value: number, low: number, high: number} | null | undefined} versus @param {string} rival */
function ratioFact(versus, rival) {
  if (!versus) return nothing;
  const word = verdict(versus.low, versus.high);
  return html`<div><dt>${word === "tied" ? "tied with" : `${word} than`} ${rival}, 95 % ${versus.low.toFixed(3)}\u00a0–\u2060\u00a0${versus.high.toFixed(3)}</dt>
    <dd class=${word}>${SIGNS[word]} ${times(versus.value)}</dd></div>`;
}

/** Without evidence of another problem. @param {any} answer */
export const own = (answer) => ({ ...answer, evidence: answer.evidence?.problem.key === answer.problem.key ? answer.evidence : null });

/** An answer's source, and its numbers. @param {any} answer @param {unknown} [more] further facts */
export function summary(answer, more = nothing) {
  const { evidence, source, time_us: time, interval_us: range, roofline_us: bound } = own(answer);
  return html`<p><span class="badge ${source}">${source}</span>
      ${evidence?.device_kind === "recorded" && source !== "recorded" ? html`<span class="badge recorded">recorded</span>` : nothing} ${answer.why}</p>
    <dl class="facts">
      ${fact(us(time), `${["measured", "recorded", "stale"].includes(source) ? "95 %" : "likely"} ${range ? `${number(range[0])} – ${number(range[1])}` : "unknown"}`)}
      ${answer.tflops ? fact(number(answer.tflops), "TFLOP/s") : nothing}
      ${bound && time ? fact(percent(bound / time), "of the roofline bound") : nothing}
      ${ratioFact(evidence?.versus_cublaslt_first, "cuBLASLt’s first choice")}${ratioFact(evidence?.versus_cublaslt_best, "its best candidate")}${more}</dl>`;
}

/**
 * Knobs that differ from their defaults first, the others behind a click.
 * @param {Record<string, string | number>} knobs
 * @param {Record<string, string | number>} defaults empty while unknown
 */
export function knobChips(knobs, defaults) {
  const entries = Object.entries(knobs);
  const changed = entries.filter(([name, value]) => defaults[name] !== value);
  const same = entries.filter(([name, value]) => defaults[name] === value);
  return html`<ul class="chips" aria-label="Knobs that differ from their defaults">${changed.map(chip)}</ul>
    ${same.length ? html`<details><summary>${same.length} knobs at their defaults</summary>
      <ul class="chips">${same.map(chip)}</ul></details>` : nothing}`;
}

/** What one says of a config in a word: its tile, its ring, its cluster. @param {{family: string, knobs: Record<string, any>}} config */
export function headline({ family, knobs }) {
  // Its stages and cluster are numbers of the library's own enums.
  if (family === "cublaslt") return html`<span class="mono">${family}</span>`;
  const { tile_m: m, tile_n: n, tile_k: k, stages, cluster_m: down, cluster_n: across, schedule } = knobs;
  const words = [m && n && `${m}×${n}${k ? `×${k}` : ""}`, stages && `${stages} stages`, down * across > 1 && `cluster ${down}×${across}`, schedule].filter(Boolean);
  return html`<span class="mono">${family}</span>${words.length ? ` · ${words.join(" · ")}` : ""}`;
}

/** @param {[string, string | number]} knob */
const chip = ([name, value]) => html`<li class="chip"><span>${name}</span> <b>${value}</b></li>`;
