// Compare: what differs between two measurements? Only that.

import "../charts/strips.js";
import { Refusal } from "../lib/api.js";
import { clock, number, SIGNS, times, us, verdict } from "../lib/format.js";
import { titleOfKey } from "../lib/problem.js";
import { html, nothing } from "../lib/view.js";

/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  page.title("Compare");
  const ids = [page.param("a"), page.param("b")];
  if (!ids.every((id) => /^\d+$/.test(id))) throw new Refusal(404, "The address must name two measurements, as in /compare?a=12&b=34. Choose them on a problem’s page.");
  const [a, b] = await Promise.all(ids.map((id) => page.get(`/v1/measurements/${id}`)));
  const alike = a.outcome === "correct" && b.outcome === "correct" && a.problem.key === b.problem.key && a.policy === b.policy;
  // Refused for two GPU models, and where one of the times can't be true.
  const ratio = alike ? await page.get(`/v1/measurements/${a.id}/versus/${b.id}`).catch(absent) : null;
  page.show(() => html`<h1>What differs?</h1>${head(a, b, ratio)}
    <div class="halves"><div class="stack"><section class="card">${diff("Config", knobsOf(a), knobsOf(b), "the same config")}</section>
      <section class="card">${diff("Program and machine", programOf(a), programOf(b), "the same program on the same machine")}</section></div>
    <div class="stack">${samples(a, b)}<section class="card">${diff("State of the GPU", stateOf(a), stateOf(b), a.clocks && b.clocks ? "the same clocks and power" : "no clock was read")}</section></div></div>
    <p class="row"><a href=${`/compare?a=${b.id}&b=${a.id}`}>Swap them</a> <a href=${problemLink(a)}>${titleOfKey(a.problem.key)}</a></p>`);
}

/** @param {Error} error */
function absent(error) {
  if (error instanceof Refusal && error.status === 409) return null;
  throw error;
}

/** @param {any} a */
const problemLink = (a) => `/problem?${new URLSearchParams({ key: a.problem.key, device: a.device })}`;

/** @param {any} a @param {any} b @param {any} ratio */
function head(a, b, ratio) {
  const reasons = [a.problem.key !== b.problem.key && "the problems differ", a.policy !== b.policy && `the times stand for different things (${a.policy}, ${b.policy})`,
    a.stage !== b.stage && `one is of stage ${a.stage}, the other of ${b.stage}`, a.device_kind !== b.device_kind && "one is replayed", !(a.median_us && b.median_us) && "one has no time"].filter(Boolean);
  const side = (/** @type {string} */ name, /** @type {any} */ it) => html`<div><dt>${name}: ${it.config.family} #${it.id}, ${it.stage}, ${it.policy}, ${it.outcome}</dt><dd>${it.median_us ? us(it.median_us) : "no time"}</dd></div>`;
  const word = verdict(ratio?.low, ratio?.high);
  return html`<dl class="facts">${side("A", a)}${side("B", b)}
    ${ratio ? html`<div><dt>A is ${word === "tied" ? "tied with" : `${word} than`} B (95 % ${ratio.low.toFixed(3)}\u00a0–\u2060\u00a0${ratio.high.toFixed(3)})</dt><dd class=${word}>${SIGNS[word]} ${times(ratio.value)}</dd></div>` : nothing}</dl>
    ${reasons.length ? html`<p class="sentence tied">◆ Compare with care: ${reasons.join("; ")}.</p>` : nothing}`;
}

/** @param {string} title @param {Record<string, unknown>} left @param {Record<string, unknown>} right @param {string} same */
function diff(title, left, right, same) {
  const names = Object.keys({ ...left, ...right }).filter((name) => (left[name] ?? right[name]) != null);
  const differing = names.filter((name) => String(left[name] ?? "–") !== String(right[name] ?? "–"));
  return html`<h2>${title}</h2>${differing.length ? html`<table><caption class="visually-hidden">${title}: what differs</caption><thead><tr><th scope="col">What</th><th scope="col">A</th><th scope="col">B</th></tr></thead>
    <tbody>${differing.map((name) => html`<tr><th scope="row">${name}</th><td class="mono long">${left[name] ?? "–"}</td><td class="mono long">${right[name] ?? "–"}</td></tr>`)}</tbody></table>` : nothing}
    <p class="says">${differing.length ? `${names.length - differing.length} of ${names.length} are the same and left out.` : `Nothing: ${same}.`}</p>`;
}

/** @param {any} it */
const knobsOf = (it) => ({ family: it.config.family, ...it.config.knobs });

/** @param {any} it */
const programOf = (it) => ({ problem: it.problem.key, device: it.device, kind: it.device_kind, ...it.provenance, build: it.build_digest, note: it.note, "largest error / bound": it.verification && (it.verification.worst_ratio?.toFixed(3) ?? "∞"), outcome: it.outcome, detail: it.detail });

/** @param {any} it */
const stateOf = (it) => ({ "SM clock, MHz": it.clocks?.sm_mhz, "memory clock, MHz": it.clocks?.memory_mhz, "power, W": it.clocks?.power_w && number(it.clocks.power_w), "temperature, °C": it.clocks?.temperature_c,
  throttled: it.clocks && (it.clocks.throttle_reasons.join(", ") || "no"), "energy of a product, mJ": it.product_joules && number(it.product_joules * 1000), taken: clock(it.taken_at) });

/** @param {any} a @param {any} b */
function samples(a, b) {
  const strips = [["A", a, "served"], ["B", b, "library"]].filter(([, it]) => it.samples_us.length).map(([name, it, kind]) => ({
    name: `${name}: ${it.config.family}`, note: `${it.samples_us.length} samples`, samples: it.samples_us, median: it.median_us, kind }));
  if (!strips.length || a.problem.key !== b.problem.key) return nothing;
  return html`<section class="card"><chart-strips .data=${{ title: "Samples", strips, unit: "µs", band: null, keyless: true,
    sentence: "Every sample of both; marks are medians. A ratio goes turn by turn within the same finals." }}></chart-strips></section>`;
}
