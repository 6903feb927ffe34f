// Fleet: is every GPU busy, and on what?

import "../charts/lanes.js";
import { tableOf } from "../charts/table.js";
import { ago, duration, many, number, percent } from "../lib/format.js";
import { latest } from "../lib/page.js";
import { titleOfKey } from "../lib/problem.js";
import { may } from "../lib/shell.js";
import { html, nothing } from "../lib/view.js";

const WINDOWS = [["5", "5 min"], ["30", "30 min"], ["180", "3 h"], ["1440", "a day"]];
/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  page.title("Fleet");
  /** @type {any} */
  const got = { fleet: null, rounds: [], lanes: null, wrong: "" };
  const wanted = () => Number(WINDOWS.find(([value]) => value === page.param("minutes"))?.[0] ?? 0);
  // Without a choice, the shortest window in which anything ran.
  const minutes = () => {
    const asked = wanted();
    const idle = got.rounds.length ? (Date.now() - new Date(got.rounds[0].ended_at ?? Date.now()).getTime()) / 60_000 : 0;
    return asked || Number(WINDOWS.find(([most]) => idle < Number(most) / 2)?.[0] ?? 1440);
  };
  const soon = latest(async () => {
    const since = new Date(Date.now() - (wanted() || 1440) * 60_000).toISOString();
    const [fleet, rounds] = await Promise.all([page.get("/v1/fleet"), page.get("/v1/rounds", { since, limit: 1000 })]);
    fleet.items = fleet.items.map((/** @type {any} */ item) => ({ ...item.worker, ...item })).sort((/** @type {any} */ a, /** @type {any} */ b) => a.name.localeCompare(b.name, "en", { numeric: true }));
    fleet.workers = { live: 0, draining: 0, gone: 0, ...fleet.workers };
    Object.assign(got, { fleet, rounds: rounds.items });
    got.lanes = lanes(got, minutes());
    page.redraw();
  });
  const drain = async (/** @type {number} */ id) => {
    got.wrong = "";
    await page.post(`/v1/workers/${id}:drain`).catch((error) => { got.wrong = error.message; });
    await soon();
  };
  page.show(() => html`<h1>Is every GPU busy, and on what?</h1>
    ${got.fleet ? html`<dl class="facts"><div><dt>live</dt><dd>${got.fleet.workers.live}</dd></div><div><dt>draining</dt><dd>${got.fleet.workers.draining}</dd></div>
      <div><dt>gone</dt><dd>${got.fleet.workers.gone}</dd></div>${got.fleet.devices.map((/** @type {any} */ device) => html`<div><dt>${device.device}${device.device_kind === "recorded" ? " (recorded)" : ""}, ${many(device.waiting_problems, "problem")} waiting</dt><dd>${device.busy} of ${device.live + device.draining} busy</dd></div>`)}</dl>
    <div class="row" role="group" aria-label="Window">${WINDOWS.map(([value, words]) => html`<button type="button" class="tab" aria-pressed=${String(Number(value) === minutes())} @click=${() => { page.set({ minutes: value }); void soon(); }}>${words}</button>`)}</div>
    ${got.fleet.items.length ? html`<section class="card"><chart-lanes .data=${got.lanes}></chart-lanes></section>${workers(got, drain)}`
      : html`<section class="card narrow"><h2>No worker has been seen in the last hour</h2><p>Start one on each GPU node; it connects to this service:</p><pre>gemmtune worker run --url ${location.origin}</pre><p>Without a GPU: <code>gemmtune worker run --device recorded:h200 --url ${location.origin}</code></p></section>`}` : nothing}`);
  page.live({ worker: soon, round: soon, began: soon, hello: soon });
  page.every(10, () => void soon());
  await soon();
}

/** @param {any} got @param {number} minutes */
function lanes(got, minutes) {
  const to = Date.now() / 1000;
  const second = (/** @type {string | null} */ moment) => (moment ? new Date(moment).getTime() / 1000 : to);
  const spans = (/** @type {number} */ id) => got.rounds.filter((/** @type {any} */ round) => round.worker_id === id && round.claimed_at).map((/** @type {any} */ round) => {
    const [from, end] = [second(round.claimed_at), second(round.ended_at)];
    const progress = round.progress ? `, ${round.progress.stage} ${round.progress.tried}` : "";
    return { from, to: end, kind: round.status, busy: round.status === "running" ? 1 : round.busy_seconds / Math.max(0.1, end - from),
      text: `${titleOfKey(round.problem)}: ${round.status}${progress}, ${duration(end - from)}, ${round.measured ?? 0} measured${round.reason ? `, ${round.reason}` : ""}`, href: `/campaign?id=${round.campaign_id}` };
  });
  const items = got.fleet.items.map((/** @type {any} */ worker) => ({ name: worker.name, gone: worker.status === "gone", spans: spans(worker.id) }));
  const lost = got.rounds.filter((/** @type {any} */ round) => round.status === "lost").length;
  return { title: "Rounds", from: to - minutes * 60, to, lanes: items,
    sentence: `A span is a round, in UTC. Its filled height is the share of time the GPU worked; the rest is compiling and waiting, and gaps are idle. Hatched rounds were lost, failed or withdrawn${lost ? `: ${lost} here` : ""}.${got.rounds.length < 1000 ? "" : " Only the newest 1000 are shown."}` };
}

/** @param {any} got @param {(id: number) => void} drain */
function workers(got, drain) {
  const off = !may("admin");
  return html`<section class="card">${tableOf("Workers", ["Worker", "Status", "GPU", "Now", ["Busy"], ["Clock"], ["Power"], "Throttle", "Driver", "Seen", html`<span class="visually-hidden">Drain</span>`],
      got.fleet.items.map((/** @type {any} */ worker) => { const clocks = worker.last_clocks; return html`<tr><th scope="row">${worker.name}</th>
      <td class=${worker.status === "live" ? "gain" : worker.status === "gone" ? "loss" : "tied"}>${worker.status === "live" ? "●" : worker.status === "gone" ? "✕" : "◐"} ${worker.status}${worker.gone_because ? `: ${worker.gone_because}` : ""}</td>
      <td>${worker.device}${worker.device_kind === "recorded" ? " (recorded)" : ""}</td><td>${worker.round ? html`<a href=${`/campaign?id=${worker.round.campaign_id}`}>${titleOfKey(worker.round.problem)}</a>${worker.round.progress ? ` ${worker.round.progress.stage} ${worker.round.progress.tried}` : ""}` : worker.status === "gone" ? "–" : "idle"}</td>
      <td class="num">${percent(worker.busy_share)}</td><td class="num">${clocks ? `${number(clocks.sm_mhz)} MHz` : "–"}</td><td class="num">${clocks ? `${number(clocks.power_w, 3)} W` : "–"}</td><td>${clocks?.throttle_reasons.join(", ") || "–"}</td>
      <td>${worker.driver}</td><td>${ago(worker.beat_at)}</td><td>${worker.status === "live" ? html`<button type="button" class="quiet small" ?disabled=${off} @click=${() => drain(worker.id)}>Drain</button>` : nothing}</td></tr>`; }))}
    <p class="says" role="status">${got.wrong || `A draining worker finishes its round, then leaves.${off ? " Draining needs a token with scope admin." : ""}`}</p></section>`;
}
