// Problem: why is this the winner, and how sure?

import { address, Refusal } from "../lib/api.js";
import { written } from "../lib/configs.js";
import { count, whole } from "../lib/format.js";
import { latest } from "../lib/page.js";
import { parameters, problemFields, title } from "../lib/problem.js";
import { html, nothing } from "../lib/view.js";
import { devicesOf } from "../parts/devices.js";
import { fact, headline, knobChips, own, summary } from "../parts/facts.js";
import { ownLayouts } from "../parts/own_layouts.js";
import { finalsCard } from "../parts/problem/finals.js";
import { changesCard, failuresCard, funnelCard } from "../parts/problem/funnel.js";
import { clocksCard, historyCard, provenanceCard } from "../parts/problem/provenance.js";
import { searchCard } from "../parts/problem/search.js";
import { tilesCard } from "../parts/problem/tiles.js";

/** Cards that are made anew when a part arrives. @type {Record<string, string[]>} */
const USED_BY = {
  measurements: ["tilesCard", "searchCard", "clocksCard", "failuresCard"], study: ["finalsCard", "searchCard", "clocksCard"], importance: ["changesCard"], outlook: ["searchCard"],
  space: ["tilesCard", "searchCard", "funnelCard"], funnel: ["funnelCard"], history: ["historyCard"], defaults: [],
};
/** More measurements than this are sampled by the service. */
const MOST = 150_000;
/** Milliseconds of a frame in which cards are made. */
const SHARE = 24;

/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  const key = page.param("key");
  if (!key) throw new Refusal(404, "The address names no problem: choose one from the list.");
  const fields = await problemFields(page, key);
  const P = parameters(fields);
  page.title(title(fields));
  /** What has arrived, by name; each card draws as soon as it has what it needs. @type {Record<string, any>} */
  const got = { fields, key, made: {}, kept: {} };
  page.show(() => body(page, got));

  // The address names the device as a rule; a store with several needs one.
  got.device = page.param("device") || (await devicesOf(page)).device;
  const ask = () => page.get("/v1/best", { ...P, device: got.device, policy: page.param("policy") }).then(own);
  const answer = ask();
  const asked = { ...P, device: got.device };
  /** @type {Record<string, Promise<any>>} */
  const newest = {};
  const put = (/** @type {string} */ name, /** @type {Promise<any>} */ coming) => (newest[name] = coming).catch((error) => {
    if (!(error instanceof Refusal)) throw error;
    return { refused: error.message };
  }).then((value) => {
    if (newest[name] !== coming) return;
    got[name] = value;
    for (const card of USED_BY[name]) delete got.made[card];
    page.redraw();
  });
  const measured = { problem: key, device: got.device };
  const columns = () => page.get("/v1/measurements:columns", { ...measured, limit: MOST }).then(standing);
  const study = async (/** @type {any} */ of) => {
    const id = (await of).evidence?.study_id || (await page.get("/v1/studies", { ...measured, limit: 1 })).items[0]?.id;
    // Ordering all candidates may take seconds: nothing waits for it.
    if (id) void put("outlook", page.get(`/v1/studies/${id}/outlook`));
    return id ? page.get(`/v1/studies/${id}`) : null;
  };
  const more = latest(() => put("measurements", columns()));
  const axes = { x: page.param("x", "tile_n"), y: page.param("y", "tile_m") };
  const defaults = async (/** @type {any} */ of) => {
    const { config } = await of;
    return (await page.post("/v1/explain", { problem: P, family: config?.family, knobs: {}, device: got.device })).config.knobs;
  };
  const derived = () => [
    put("importance", page.get("/v1/importance", asked)), put("funnel", page.get("/v1/funnel", asked)),
    put("history", page.get("/v1/best/history", asked)),
  ];
  const anew = latest(async () => {
    const answer = await ask();
    Object.assign(got, { answer, made: {} });
    page.redraw();
    await Promise.all([put("study", study(answer)), put("defaults", defaults(answer)), ...derived()]);
  });
  const again = () => { void more(); void anew(); };
  page.live({
    measurements: ({ problems }) => (problems ?? [key]).includes(key) && void more(),
    best: ({ problem = key }) => problem === key && void anew(),
    began: async () => (await ask()).evidence?.measurement_id !== (await answer).evidence?.measurement_id && again(),
    hello: again, revoked: again,
  }, { device: got.device });
  got.reload = async (/** @type {Record<string, string>} */ axes) => {
    page.set(axes);
    await put("space", page.get("/v1/space", { ...asked, x: page.param("x", "tile_n"), y: page.param("y", "tile_m") }));
  };
  const parts = [
    put("study", study(answer)), put("measurements", columns()), put("space", page.get("/v1/space", { ...asked, ...axes })),
    put("defaults", defaults(answer)), ...derived(),
  ];
  await answer.then((first) => { got.answer ??= first; });
  page.redraw();
  await Promise.all(parts);
}

/** What was not revoked. @param {any} table */
function standing(table) {
  const left = (/** @type {any[]} */ column) => column.filter((_, row) => !table.columns.revoked[row]);
  const columns = Object.fromEntries(Object.entries(table.columns).map(([name, column]) => [name, Array.isArray(column) ? left(column) : { ...column, at: left(column.at) }]));
  return { ...table, rows: columns.id.length, columns };
}

/** @typedef {(page: import("../lib/page.js").Page, got: any) => unknown} Card */

/** @param {import("../lib/page.js").Page} page @param {any} got */
function body(page, got) {
  const { answer, fields } = got;
  if (!answer) return html`<h1>${title(fields)}</h1>`;
  const measured = ["measured", "stale"].includes(answer.source) || got.measurements?.rows;
  const halves = (/** @type {Card[][]} */ columns) => html`<div class="halves">${columns.map((cards) => html`<div class="stack">${cards.map(shown)}</div>`)}</div>`;
  const began = performance.now();
  const shown = (/** @type {Card} */ card) => {
    // Cards that a frame has no time for keep what they show until the next one.
    if (!got.made[card.name] && performance.now() - began > SHARE) page.redraw();
    else got.kept[card.name] = got.made[card.name] ??= { view: card(page, got) };
    const made = got.kept[card.name]?.view ?? nothing;
    return made === nothing ? nothing : html`<section class="card" id=${card.name.replace("Card", "")}>${made}</section>`;
  };
  return html`<h1>${title(fields)}</h1>${head(page, answer, got)}
    ${measured ? halves([[finalsCard], [funnelCard, failuresCard]]) : shown(funnelCard)}${shown(tilesCard)}
    ${measured ? halves([[searchCard, clocksCard, historyCard], [changesCard, provenanceCard]]) : nothing}`;
}

/** @param {import("../lib/page.js").Page} page @param {any} answer @param {any} got */
function head(page, answer, got) {
  const { evidence } = answer;
  const knobs = answer.config ? written(answer.config) : "";
  const other = got.study?.finals?.find((/** @type {any} */ final) => !final.served && final.measurement_id !== evidence?.measurement_id);
  return html`${summary(answer, evidence?.verification ? fact(`${whole(evidence.verification.mismatches)} wrong`, `of ${count(evidence.verification.elements)} elements; error ≤ ${evidence.verification.worst_ratio.toFixed(2)} of its bound`) : nothing)}
    ${answer.config ? html`<h2>${headline(answer.config)}</h2>${knobChips(answer.config.knobs, got.defaults && !got.defaults.refused ? got.defaults : {})}` : nothing}
    <p class="row centre"><a href=${address("/", { ...parameters(got.fields), device: answer.device, policy: page.param("policy") })}>Copy it as code</a>
      ${answer.config ? html`<a href=${address("/explain", { problem: got.key, device: answer.device, family: answer.config.family, knobs })}>Change it and see what breaks</a>
        <a href=${layoutLink(got, answer, knobs)}>Its layouts</a>` : nothing}
      <a href=${address("/ladder", { ...parameters(got.fields), m: "", device: answer.device })}>The same weight at every M</a>
      ${other && evidence ? html`<a href=${`/compare?a=${evidence.measurement_id}&b=${other.measurement_id}`}>Compare it with the next</a>` : nothing}</p>`;
}

/** The first of the config's layouts. @param {any} got @param {any} answer @param {string} knobs */
function layoutLink(got, { config, problem, device }, knobs) {
  const [[, first] = []] = ownLayouts(config, problem);
  return address("/layouts", { problem: got.key, knobs, family: config.family, device, ...first });
}
