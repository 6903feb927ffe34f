// Campaign: how far, how long, and is it worth going on?

import "../charts/cells.js";
import "../charts/scatter.js";
import { tableOf } from "../charts/table.js";
import { Refusal } from "../lib/api.js";
import { plain } from "../lib/columns.js";
import { ago, count, duration, geometricMean, number, quantile, times, total, verdict } from "../lib/format.js";
import { latest } from "../lib/page.js";
import { titleOfKey } from "../lib/problem.js";
import { may } from "../lib/shell.js";
import { html, nothing } from "../lib/view.js";

const LOOKS = /** @type {Record<string, [string, string]>} */ ({
  waiting: ["soft", ""], open: ["tie", "▶"], parked: ["loss", "✕"], skipped: ["soft", "–"], revoked: ["soft", "⊘"], faster: ["gain", "▲"], slower: ["loss", "▼"], tied: ["tie", "◆"], none: ["mark", "✓"],
});

/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  const id = page.param("id");
  if (!/^\d{1,9}$/.test(id)) throw new Refusal(404, `No campaign has the number “${id}”: choose one from the list of campaigns.`);
  /** @type {any} */
  const got = { progress: await page.get(`/v1/campaigns/${id}`), table: null, made: null, sure: false, wrong: "" };
  page.title(got.progress.campaign.name);
  const soon = latest(async () => {
    const [progress, table] = await Promise.all([page.get(`/v1/campaigns/${id}`), page.get(`/v1/campaigns/${id}/problems:columns`)]);
    Object.assign(got, { progress, table: decoded(table), made: null });
    page.redraw();
  });
  got.act = async (/** @type {string} */ verb) => {
    got.wrong = "";
    await page.post(`/v1/campaigns/${id}:${verb}`).catch((error) => { got.wrong = error.message; });
    got.sure = false;
    await soon();
  };
  page.show(() => view(page, got));
  page.live({ campaign: soon, problem: soon, round: soon, worker: soon, began: soon, hello: soon, revoked: soon }, { campaign: id });
  await soon();
}

/** @param {any} table */
function decoded(table) {
  const columns = Object.fromEntries(Object.entries(table.columns).map(([name, column]) => [name, plain(/** @type {any} */ (column))]));
  columns.look = columns.revoked.map((/** @type {boolean} */ gone, /** @type {number} */ row) => {
    if (gone) [columns.status[row], columns.first[row]] = ["revoked", null];
    return columns.status[row] === "done" ? verdict(columns.first_low[row], columns.first_high[row]) : columns.status[row];
  });
  return { ...table, columns };
}

/** @param {import("../lib/page.js").Page} page @param {any} got */
function view(page, got) {
  const { progress, table } = got;
  const { campaign, problems } = progress;
  const all = total(Object.values(problems));
  got.made ??= table && { cells: cells(table, campaign), gains: gains(table, campaign) };
  const { first = [], status, family } = table?.columns ?? {};
  // As `gemmtune campaign show`: what the library won is no gain of ours.
  const ours = first.filter((/** @type {number | null} */ ratio, /** @type {number} */ row) => ratio && status[row] === "done" && family[row] !== "cublaslt");
  const mean = geometricMean(ours);
  const budget = campaign.budget.gpu_seconds;
  return html`<h1>${campaign.name}</h1>
    <p><span class="badge ${campaign.status === "running" ? "gain" : "tied"}">${campaign.status}</span> created ${ago(campaign.created_at)}${campaign.stopped_because ? `; it stopped because ${campaign.stopped_because}` : ""}</p>
    <dl class="facts"><div><dt>of ${count(all)} problems done</dt><dd>${count(problems.done)}</dd></div>
      <div><dt>candidates of at most ${count(progress.most_candidates)}</dt><dd>${count(progress.tried)}</dd></div>
      ${mean ? html`<div><dt>geometric mean of ${ours.length} that our kernels won</dt><dd>${times(mean)}</dd></div>` : nothing}
      <div><dt>${budget ? `of ${duration(budget)} of GPU time` : "of GPU time, without a limit"}</dt><dd>${duration(progress.gpu_seconds)}</dd></div>
      ${campaign.status === "running" ? left(progress, table) : nothing}
      ${problems.parked ? html`<div><dt>parked</dt><dd class="loss">✕ ${problems.parked}</dd></div>` : nothing}</dl>
    ${budget ? html`<p><progress max=${budget} value=${progress.gpu_seconds} aria-label="GPU time used"></progress> ${Math.round((progress.gpu_seconds / budget) * 100)} % of the budget</p>` : nothing}
    ${buttons(page, got)}
    ${got.made ? html`<div class="halves"><section class="card"><chart-cells .data=${got.made.cells}></chart-cells></section>
      <section class="card"><chart-scatter .data=${got.made.gains}></chart-scatter></section></div>${parked(table)}` : nothing}`;
}

/** The time that is left, with a range from how much the problems that ended differ. @param {any} progress @param {any} table */
function left(progress, table) {
  if (!progress.workers) return html`<div><dt>left: no worker is live, so nothing moves</dt><dd>–</dd></div>`;
  if (!progress.seconds_left) return html`<div><dt>left: too early to tell</dt><dd>–</dd></div>`;
  const spent = table ? table.columns.gpu_seconds.filter((/** @type {number} */ seconds, /** @type {number} */ row) => table.columns.status[row] === "done" && seconds > 0).sort((/** @type {number} */ a, /** @type {number} */ b) => a - b) : [];
  const middle = spent.length > 3 ? quantile(spent, 0.5) : 0;
  const remaining = progress.problems.waiting + progress.problems.open;
  const spread = middle ? (quantile(spent, 0.9) - quantile(spent, 0.1)) / middle / 2 / Math.sqrt(Math.max(1, remaining)) : 0;
  const range = middle ? ` (${duration(progress.seconds_left * Math.max(0.2, 1 - spread))} – ${duration(progress.seconds_left * (1 + spread))})` : "";
  return html`<div><dt>left${range}, ${number(progress.candidates_a_second, 2)} candidates/s on ${progress.workers === 1 ? "one worker" : `${progress.workers} workers`}</dt><dd>${duration(progress.seconds_left)}</dd></div>`;
}

/** @param {import("../lib/page.js").Page} page @param {any} got */
function buttons(page, got) {
  const { status } = got.progress.campaign;
  const [running, paused] = [status === "running", status === "paused"];
  if (!running && !paused) return nothing;
  const off = !may("submit");
  const cancel = () => { if (got.sure) void got.act("cancel"); else { got.sure = true; page.redraw(); } };
  return html`<p class="row centre">${running ? html`<button type="button" class="quiet" ?disabled=${off} @click=${() => got.act("pause")}>Pause</button>` : html`<button type="button" ?disabled=${off} @click=${() => got.act("resume")}>Resume</button>`}
    <button type="button" class="danger" ?disabled=${off} @click=${cancel}>${got.sure ? "Really cancel: it can’t be resumed" : "Cancel"}</button>
    <span role="status" class=${got.wrong ? "loss" : "soft"}>${got.wrong || (off ? "Your token lacks the scope submit." : "")}</span></p>`;
}

/** @param {any} columns @param {number} row */
const link = (columns, row) => `/problem?${new URLSearchParams({ key: columns.key[row], device: columns.device[row].replace(/^recorded:/, "") })}`;

/** @param {any} table @param {any} campaign */
function cells(table, campaign) {
  const { columns } = table;
  const most = campaign.budget.candidates;
  const text = (/** @type {number} */ row) => `${titleOfKey(columns.key[row])}: ${columns.status[row]}${columns.median_us[row] ? `, ${number(columns.median_us[row])} µs` : ""}${columns.first[row] ? `, ${times(columns.first[row])} ${columns.look[row]}` : ""}${
    columns.reason[row] ? `\n${columns.reason[row]}` : ""}`;
  return {
    title: "Problems", cells: table.rows,
    sentence: "A cell is a problem: empty while it waits, filling while candidates run. ▲ what is served is faster than cuBLASLt’s first choice, ◆ tied, ▼ slower, ✕ parked, ⊘ revoked.",
    cell: (/** @type {number} */ row) => {
      const [token, sign] = LOOKS[columns.look[row]];
      const fill = columns.status[row] === "waiting" ? 0 : columns.status[row] === "open" ? Math.min(0.95, columns.tried[row] / most) : 1;
      return { token, sign, fill, text: text(row), label: columns.first[row] ? `${columns.first[row].toFixed(2)}×` : "", href: columns.median_us[row] ? link(columns, row) : undefined };
    },
    rows: () => ({ head: ["problem", "status", "candidates", "µs", "speed-up"], rows: columns.key.map((/** @type {string} */ key, /** @type {number} */ row) => [titleOfKey(key), columns.status[row], columns.tried[row], number(columns.median_us[row]), times(columns.first[row])]) }),
  };
}

/** @param {any} table @param {any} campaign */
function gains(table, campaign) {
  const { columns } = table;
  const began = new Date(campaign.created_at).getTime() / 1000;
  const rows = [...columns.key.keys()].filter((row) => columns.first[row] && columns.ended_at[row]);
  const groups = ["faster", "tied", "slower", "none"];
  const last = Math.max(1, ...rows.map((/** @type {number} */ row) => columns.ended_at[row] - began));
  const [unit, length] = last < 180 ? ["seconds", 1] : last < 10_800 ? ["minutes", 60] : ["hours", 3600];
  const when = (/** @type {number} */ row) => (columns.ended_at[row] - began) / Number(length);
  return {
    title: "Gains as they land", x: Float64Array.from(rows, when), y: Float64Array.from(rows, (row) => columns.first[row]),
    group: Uint8Array.from(rows, (row) => groups.indexOf(columns.look[row])), groups: groups.map((shape) => ({ shape, name: shape, token: LOOKS[shape][0] })),
    lines: rows.length ? [{ x: [0, last / Number(length)], y: [1, 1], token: "soft", name: "" }] : [],
    axes: { x: `${unit} since it began`, y: "× cuBLASLt’s first choice", logY: true }, holds: { x: 0, y: 1 }, sentence: "Each mark is a problem, where it ended, at its speed-up. The line is cuBLASLt’s first choice.",
    text: (/** @type {number} */ place) => `${titleOfKey(columns.key[rows[place]])}: ${times(columns.first[rows[place]])}`,
    href: (/** @type {number} */ place) => link(columns, rows[place]),
    rows: () => ({ head: ["problem", String(unit), "speed-up"], rows: rows.map((/** @type {number} */ row) => [titleOfKey(columns.key[row]), number(when(row), 3), times(columns.first[row])]) }),
  };
}

/** @param {any} table */
function parked(table) {
  const { columns } = table;
  const rows = [...columns.key.keys()].filter((row) => columns.status[row] === "parked");
  if (!rows.length) return nothing;
  const failing = rows.some((row) => columns.failing_config[row]);
  return html`<section class="card"><h2>Parked</h2>${tableOf("Parked problems", ["Problem", "Why", ...(failing ? ["Failing config"] : [])],
      rows.slice(0, 100).map((row) => html`<tr><th scope="row">${titleOfKey(columns.key[row])}</th><td>${columns.reason[row]}</td>${failing ? html`<td class="mono long">${columns.failing_config[row]}</td>` : nothing}</tr>`))}
    <p class="says">Parked problems take no more GPU time.${rows[100] ? " The first 100 are shown." : ""}${failing ? " The failing config ran as the worker died or the attempts ended." : ""}</p></section>`;
}
