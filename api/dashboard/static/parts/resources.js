// Shared memory and registers of a config, stacked against their limits.

import { bytes, percent, whole } from "../lib/format.js";
import { html, nothing } from "../lib/view.js";

const TOKENS = ["mark", "other", "tie", "soft"];

/** @param {any} answer of explain:neighbours */
export function resources(answer) {
  const { smem, registers } = answer;
  if (!smem && !registers) return nothing;
  return html`<section class="card">
    ${smem ? stack("Shared memory of a block", smem.parts.map((/** @type {any} */ part) => [part.name, part.bytes, bytes(part.bytes)]), smem.used_bytes, smem.limit_bytes, bytes) : nothing}
    ${registers ? stack("Registers of an SM", [[registers.per_thread ? `${registers.per_thread} a thread` : "all threads", registers.used, whole(registers.used)]], registers.used, registers.limit, (value) => whole(value)) : nothing}
    ${registers?.held ? stack("Registers a thread holds for its sums", [["accumulators and operands", registers.held, whole(registers.held)]], registers.held, registers.most_per_thread, (value) => whole(value)) : nothing}
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
