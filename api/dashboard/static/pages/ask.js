// Ask: what do I run for this GEMM, and may I trust it?

import { many } from "../lib/format.js";
import { latest } from "../lib/page.js";
import { parameters, parse } from "../lib/problem.js";
import { html, nothing } from "../lib/view.js";
import { devicesOf } from "../parts/devices.js";
import { answered } from "../parts/answer.js";

const EXAMPLES = ["4096x4096x4096", "1x4096x14336", "7x4096x4096 fp8 nn", "128x28672x4096 bf16 bias+gelu", "2048x2048x2048 int8"];
const POLICIES = [["", "as served"], ["sustained", "sustained: long, at its own clock"], ["chain", "chain: between other kernels"],
  ["chain_pdl", "chain_pdl: among kernels that start early"], ["burst", "burst: now and then"], ["rounds", "rounds: at one clock"]];
/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  page.title("");
  /** @type {{text: string, answer: any, sentence: string, defaults: any}} */
  const state = { text: textOf(page.query), answer: null, sentence: "", defaults: {} };
  /** @type {any[]} */
  let devices = [];
  let asked = 0;
  let timer = 0;

  const view = () => html`
    <h1>What should I run for this GEMM?</h1>
    <form class="card" @submit=${(/** @type {Event} */ event) => { event.preventDefault(); void ask(true); }}>
      <label for="shape">M×N×K, then dtype, layout, batch and epilogue in any order</label>
      <input id="shape" class="big" name="shape" autocomplete="off" spellcheck="false" placeholder="4096x4096x4096 bf16 nt"
        .value=${state.text} @input=${typed} aria-describedby="shape-note">
      <ul class="chips" aria-label="Examples">${EXAMPLES.map((text) => html`
        <li><button type="button" class="chip" @click=${() => take(text)}>${text}</button></li>`)}</ul>
      <div class="row">
        <label>Device <select name="device" @change=${(/** @type {any} */ event) => choose({ device: event.target.value })}>
          ${devices.map((device) => html`<option value=${device.name} ?selected=${device.name === chosen()}>${device.name}${
            device.bests ? ` (${device.bests} measured)` : ""}</option>`)}</select></label>
        <label>Timing policy <select name="policy" @change=${(/** @type {any} */ event) => choose({ policy: event.target.value })}>
          ${POLICIES.map(([name, words]) => html`<option value=${name} ?selected=${name === page.param("policy")}>${words}</option>`)}
        </select></label>
      </div>
      <p id="shape-note" class="note" role="status">${state.sentence}</p>
    </form>
    ${state.answer ? answered(state.answer, state.defaults, page) : devices.length ? begin(devices) : nothing}`;

  const chosen = () => page.param("device") || state.answer?.device || devices[0]?.name || "";
  const take = (/** @type {string} */ text) => { state.text = text; void ask(true); };
  const choose = (/** @type {Record<string, string>} */ change) => { page.set(change); if (state.text) void ask(false); };
  const typed = (/** @type {any} */ event) => {
    state.text = event.target.value;
    clearTimeout(timer);
    timer = setTimeout(() => void ask(false), 120);
  };

  async function ask(/** @type {boolean} */ step) {
    const turn = ++asked;
    const fields = parse(state.text);
    if (typeof fields === "string") {
      state.sentence = state.text.trim() ? fields : "";
      page.redraw();
      return;
    }
    const query = parameters(fields);
    page.set({ batch: "", epilogue: "", kind: "", ...query }, step);
    const answer = await page.get("/v1/best", { ...query, device: chosen(), policy: page.param("policy") }).catch((error) => turn === asked && refused(error));
    if (turn !== asked || !answer) return;
    Object.assign(state, { answer, sentence: "" });
    page.redraw();
    const defaults = answer.config ? await defaultsOf(page, answer) : {};
    if (turn === asked) Object.assign(state, { defaults });
    page.redraw();
  }

  function refused(/** @type {any} */ error) {
    if (error.status !== 422 && error.status !== 404) throw error;
    Object.assign(state, { answer: null, sentence: error.message });
    page.redraw();
  }

  const known = latest(async () => {
    devices = (await devicesOf(page)).all;
    page.redraw();
  });
  const again = latest(async () => { await known(); if (state.answer) await ask(false); });
  // To ask may count as a miss: only its own best asks again.
  page.live({
    best: ({ device, problem }) => void (!device || (device === chosen() && problem === state.answer?.problem.key) ? again() : known()),
    began: known, hello: again,
  });
  page.show(view);
  await known();
  page.redraw();
  if (state.text) await ask(false);
}

/** @param {URLSearchParams} query what the URL asks, as one would type it */
function textOf(query) {
  const [m, n, k] = ["m", "n", "k"].map((name) => query.get(name) ?? "");
  if (!m && !n && !k) return "";
  const batch = query.get("batch");
  const rest = [query.get("dtype"), query.get("layout"), batch && batch !== "1" && `b${batch}`, query.get("epilogue")];
  return [`${m}x${n}x${k}`, ...rest.filter((word) => word && word !== "none")].join(" ");
}

/** @param {import("../lib/page.js").Page} page @param {any} answer */
async function defaultsOf(page, answer) {
  const { problem, config, device } = answer;
  return page.post("/v1/explain", { problem: parameters(problem), family: config.family, knobs: {}, device })
    .then((explained) => explained.config.knobs, () => ({}));
}

/** @param {any[]} devices */
function begin(devices) {
  const measured = devices.filter((device) => device.bests);
  if (measured.length) return html`<p class="lead">Measured so far: ${measured.map((device, place) => html`${place ? ", " : ""}<a href=${`/problems?${new URLSearchParams({ device: device.name })}`}>${many(device.bests, "problem")} on ${device.name}</a>`)}. Any other shape is answered from a recording, from a near one, or by a prediction.</p>`;
  return html`<section class="card narrow"><h2>Nothing is measured yet</h2>
    <p>Every shape still gets an answer, from a recording or by a prediction. Measure one; a machine without a GPU replays a recorded H200:</p>
    <pre>gemmtune tune 4096x4096x4096</pre>
    <p>Many at once, on every worker of the fleet: <a href="/campaigns">create a campaign</a>.</p></section>`;
}
