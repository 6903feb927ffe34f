// Large numbers with what they mean below them.

import { SIGNS, times, verdict } from "../lib/format.js";
import { html, nothing } from "../lib/view.js";

/** @param {string} value @param {string} words */
export const fact = (value, words) => html`<div><dt>${words}</dt><dd>${value}</dd></div>`;

/** A speed-up over a rival. @param {{value: number, low: number, high: number} | null | undefined} versus @param {string} rival */
export function ratioFact(versus, rival) {
  if (!versus) return nothing;
  const word = verdict(versus.low, versus.high);
  return html`<div><dt>${word === "tied" ? "tied with" : `${word} than`} ${rival}, 95 % ${versus.low.toFixed(3)} – ${versus.high.toFixed(3)}</dt>
    <dd class=${word}>${SIGNS[word]} ${times(versus.value)}</dd></div>`;
}
