// A config as chips: knobs that differ from their defaults first, the others behind a click.

import { html, nothing } from "../lib/view.js";

/**
 * @param {Record<string, string | number>} knobs
 * @param {Record<string, string | number>} defaults empty while unknown
 */
export function knobChips(knobs, defaults) {
  const entries = Object.entries(knobs);
  const known = Object.keys(defaults).length > 0;
  const changed = known ? entries.filter(([name, value]) => defaults[name] !== value) : entries;
  const same = known ? entries.filter(([name, value]) => defaults[name] === value) : [];
  return html`<ul class="chips" aria-label="Knobs that differ from their defaults">${changed.map(chip)}</ul>
    ${same.length ? html`<details><summary>${same.length} knobs at their defaults</summary>
      <ul class="chips">${same.map(chip)}</ul></details>` : nothing}`;
}

/** What one says of a config in a word: its tile, its ring, its cluster. @param {{family: string, knobs: Record<string, any>}} config */
export function headline({ family, knobs }) {
  const { tile_m: m, tile_n: n, tile_k: k, stages, cluster_m: down, cluster_n: across, schedule } = knobs;
  const words = [m && n && `${m}×${n}${k ? `×${k}` : ""}`, stages && `${stages} stages`, down * across > 1 && `cluster ${down}×${across}`, schedule].filter(Boolean);
  return html`<span class="mono">${family}</span>${words.length ? ` · ${words.join(" · ")}` : ""}`;
}

/** @param {[string, string | number]} knob */
const chip = ([name, value]) => html`<li class="chip"><span>${name}</span> <b>${value}</b></li>`;
