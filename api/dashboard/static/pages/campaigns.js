// Campaigns: what runs, how far, and a new one with its cost before it is created.

import { tableOf } from "../charts/table.js";
import { ago, count, duration, total } from "../lib/format.js";
import { latest } from "../lib/page.js";
import { may } from "../lib/shell.js";
import { ranked } from "../parts/devices.js";
import { go, html, nothing } from "../lib/view.js";

const STATUS = /** @type {Record<string, string[]>} */ ({ running: ["▶", "gain"], paused: ["‖", "tied"], finished: ["✓", "soft"], cancelled: ["✕", "loss"] });

/** Campaigns that are shown, the newest ones. */
const MOST = 100;
/** The chosen device: it stays when the page opens anew because the service is back. */
let chosen = "";

/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  page.title("Campaigns");
  /** @type {any[]} */
  let items = [];
  let more = false;
  /** @type {Map<number, any>} */
  const progress = new Map();
  const form = { devices: /** @type {any[]} */ ([]), estimate: /** @type {any} */ (null), wrong: "", busy: true }; // until the devices are there
  const load = async () => {
    const answer = await page.get("/v1/campaigns", { order: "newest", limit: MOST });
    [items, more] = [answer.items, Boolean(answer.next)];
    page.redraw();
    const wanted = items.filter((item) => item.status === "running" || item.status === "paused" || item.status !== progress.get(item.id)?.campaign.status);
    while (wanted.length) {
      await Promise.all(wanted.splice(0, 20).map(async (item) => progress.set(item.id, await page.get(`/v1/campaigns/${item.id}`))));
      page.redraw();
    }
  };
  page.show(() => html`<h1>What runs, and is it worth going on?</h1>
    <section class="card">${items.length ? html`${tableOf("Campaigns, newest first", ["Campaign", "Status", "Problems", ["Candidates"], ["GPU time"], "Left, or why it ended", "Created"],
      items.map((item) => row(item, progress.get(item.id))))}${more ? html`<p class="note">The newest ${MOST} are shown.</p>` : nothing}`
      : html`<p class="sentence">There are no campaigns yet. A campaign tunes many problems on every worker of the fleet; create one below, or run <code>gemmtune campaign run --ladder 'm=1..512:x2 n=4096 k=4096'</code> on this machine alone.</p>`}</section>
    ${create(page, form)}`);
  const again = latest(load);
  page.live({ campaign: again, worker: again, began: again, hello: again });
  void page.get("/v1/devices").then((answer) => {
    form.devices = ranked(answer.items);
    form.busy = false;
    page.redraw();
  });
  await again();
}

/** @param {any} item @param {any} progress */
function row(item, progress) {
  const [sign, kind] = STATUS[item.status];
  const problems = progress?.problems ?? {};
  const all = total(Object.values(problems));
  const share = all ? ((problems.done + problems.parked + problems.skipped) / all) * 100 : 0;
  return html`<tr><th scope="row" class="long"><a href=${`/campaign?id=${item.id}`}>${item.name}</a></th><td class="${kind} nowrap">${sign} ${item.status}</td>
    <td class="nowrap">${progress ? html`<progress max="100" value=${share} aria-label=${`${item.name}: share of problems that ended`}></progress> ${problems.done} of ${all}${problems.parked ? html`, <span class="loss">✕ ${problems.parked} parked</span>` : nothing}` : ""}</td>
    <td class="num">${progress ? count(progress.tried) : ""}</td><td class="num">${progress ? duration(progress.gpu_seconds) : ""}</td>
    <td>${item.status !== "running" ? item.stopped_because : !progress ? "" : !progress.workers ? "no worker is live" : progress.seconds_left ? `about ${duration(progress.seconds_left)}` : "–"}</td><td>${ago(item.created_at)}</td></tr>`;
}

/** @param {import("../lib/page.js").Page} page @param {any} form */
function create(page, form) {
  const body = (/** @type {HTMLFormElement} */ element) => {
    const data = new FormData(element);
    const text = (/** @type {string} */ name) => String(data.get(name) ?? "").trim();
    const seconds = Number(text("gpu_seconds"));
    return { name: text("name"), ladders: text("ladders").split("\n").map((ladder) => ladder.trim()).filter(Boolean), devices: [{ name: text("device") }],
      budget: { candidates: Number(text("candidates")), ...(seconds > 0 && { gpu_seconds: seconds }) } };
  };
  const attempt = async (/** @type {() => Promise<void>} */ action) => {
    if (form.busy) return;
    form.busy = true;
    form.wrong = "";
    page.redraw();
    await action().catch((error) => { form.wrong = error.message; });
    form.busy = false;
    page.redraw();
  };
  const price = (/** @type {Event} */ event) => {
    const element = /** @type {HTMLFormElement} */ (/** @type {HTMLElement} */ (event.target).closest("form"));
    if (element.reportValidity()) void attempt(async () => { form.estimate = await page.post("/v1/campaigns:estimate", body(element)); });
  };
  const send = (/** @type {any} */ event) => {
    event.preventDefault();
    void attempt(async () => {
      const campaign = await page.post("/v1/campaigns", body(event.target));
      go(`/campaign?id=${campaign.id}`);
    });
  };
  const { estimate } = form;
  return html`<section class="card"><h2>A new campaign</h2><form @submit=${send} @input=${() => { form.estimate = null; page.redraw(); }}>
    <div class="row"><label>Name <input name="name" required maxlength="200" size="24"></label>
      <label>Device <select name="device" @change=${(/** @type {any} */ event) => { chosen = event.target.value; }}>${form.devices.map((/** @type {any} */ device) => html`<option ?selected=${device.name === chosen}>${device.name}</option>`)}</select></label>
      <label>Candidates per problem <input name="candidates" type="number" min="1" max="100000" value="96" required></label>
      <label>GPU seconds at most <input name="gpu_seconds" type="number" min="0" placeholder="no limit"></label></div>
    <label>Ladders, one a line: values or ranges of each field <textarea name="ladders" rows="3" cols="64" class="mono" required spellcheck="false" placeholder="m=1..8192:x2 n=4096 k=4096,14336 dtype=bf16"></textarea></label>
    <div class="row centre"><button type="button" class="quiet" @click=${price} ?disabled=${form.busy}>What would it cost?</button>
      <button ?disabled=${form.busy || !may("submit")}>Create</button>
      <span role="status" class=${form.wrong ? "loss" : "soft"}>${form.wrong || (may("submit") ? "" : "Your token lacks the scope submit.")}${estimate && !form.wrong ? cost(estimate) : nothing}</span></div></form></section>`;
}

/** @param {any} estimate */
function cost(estimate) {
  const wall = estimate.seconds ? `, ${duration(estimate.seconds)} with ${estimate.workers} live workers` : estimate.workers ? "" : ", and no worker is live now";
  return html`${count(estimate.problems)} problems, at most ${count(estimate.most_candidates)} candidates: about ${duration(estimate.gpu_seconds)} of GPU time
    (${duration(estimate.gpu_seconds_low)} – ${duration(estimate.gpu_seconds_high)})${wall}; ${estimate.rate_source === "measured" ? "by the rate of recent rounds" : "by what H100s took, because nothing was measured yet"}.
    ${estimate.untunable.length ? html`<span class="loss">✕ ${estimate.untunable.length} problems have no legal config.</span>` : nothing}`;
}
