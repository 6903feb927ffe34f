// Failures: what breaks, and is it ours?

import { bars } from "../charts/bars.js";
import { tableOf } from "../charts/table.js";
import { ago, count, many, percent } from "../lib/format.js";
import { latest } from "../lib/page.js";
import { titleOfKey } from "../lib/problem.js";
import { html, nothing } from "../lib/view.js";

/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  page.title("Failures");
  const asked = Object.fromEntries(["device", "campaign", "problem", "family", "outcome"].map((name) => [name, page.param(name)]));
  /** Groups whose example is unfolded: others may come before them. @type {Set<string>} */
  const unfolded = new Set();
  const load = latest(async () => {
    const answer = await page.get("/v1/failures", asked);
    const tally = new Map();
    for (const group of answer.groups) {
      const name = `${group.outcome}, ${group.family}`;
      tally.set(name, { value: (tally.get(name)?.value ?? 0) + group.count, ours: group.family !== "cublaslt" });
    }
    const rows = [...tally].sort((a, b) => b[1].value - a[1].value);
    const { wrong_results: wrong, read } = answer;
    const filtered = Object.entries(asked).filter(([, value]) => value);
    page.show(() => html`<h1>What breaks, and is it ours?</h1>
      ${filtered.length ? html`<p>${filtered.map(([name, value]) => html`<span class="chip"><span>${name}</span> ${name === "problem" ? titleOfKey(value) : value}</span> `)} <a href="/failures">Show all</a></p>` : nothing}
      <dl class="facts"><div><dt>failed of ${count(answer.measured)} measurements${answer.total ? ` (${percent(answer.total / answer.measured, 2)})` : ""}</dt><dd>${count(answer.total)}</dd></div>
        <div><dt>wrong results by our kernels</dt><dd class=${wrong ? "loss" : "gain"}>${wrong ? "✕" : "✓"} ${count(wrong)}</dd></div>
        <div><dt>suspects that killed a worker or parked a problem</dt><dd>${answer.suspects.length}</dd></div></dl>
      ${rows.length ? html`<section class="card">${bars({ title: "By outcome and family", sentence: `Every failure is kept with its reason, and no failing config is ever served. Purple bars are cuBLASLt’s.${read < answer.total ? ` The newest ${count(read)} are shown.` : ""}`,
        bars: rows.map(([name, { value, ours }]) => ({ name: html`<a href=${`/failures?${new URLSearchParams({ ...Object.fromEntries(filtered), outcome: name.split(", ")[0], family: name.split(", ")[1] })}`}>${name}</a>`, value, token: ours ? "loss" : "other" })) })}</section>`
        : html`<section class="card"><p class="sentence gain">${answer.measured ? "✓ Nothing failed." : `Nothing failed, because nothing is measured ${filtered.length ? "with these filters" : "yet"}.`}</p></section>`}
      ${answer.groups.map((/** @type {any} */ group) => card(page, group, unfolded))}
      ${answer.suspects.length ? html`<section class="card"><h2>Suspects</h2>${tableOf("Suspects", ["Problem", "Why", "Config"],
        answer.suspects.map((/** @type {any} */ suspect) => html`<tr><th scope="row">${titleOfKey(suspect.problem)}<br><span class="note">${suspect.device}</span></th><td>${suspect.reason}</td><td class="mono long">${suspect.config}</td></tr>`))}
        <p class="says">These configs were running when a worker died or the attempts ran out.</p></section>` : nothing}`);
  });
  await load();
  const { device, campaign, problem } = asked;
  page.live({
    measurements: ({ problems }) => (!problem || (problems ?? [problem]).includes(problem)) && void load(),
    problem: ({ status }) => status === "parked" && void load(),
    began: load, hello: load,
  }, { device, campaign });
}

/** @param {import("../lib/page.js").Page} page @param {any} group @param {Set<string>} unfolded */
function card(page, group, unfolded) {
  const { example } = group;
  const name = `${group.outcome} ${group.family} ${group.message}`;
  const turned = (/** @type {any} */ event) => {
    unfolded[event.target.open ? "add" : "delete"](name);
    page.redraw();
  };
  return html`<section class="card"><h2>${group.outcome === "wrong_result" ? html`<span class="loss">✕</span> ` : nothing}${count(group.count)} × ${group.outcome}, ${group.family}</h2>
    <p class="sentence mono long">${group.message.replaceAll("#", "…") || "without a message"}</p>
    <p class="soft">${many(group.problems, "problem")}, ${many(group.configs, "config")}; last ${ago(group.last_at)}.</p>
    ${example ? html`<details ?open=${unfolded.has(name)} @toggle=${turned}><summary>Repeat one: ${titleOfKey(example.problem)}</summary><p class="mono long">${example.detail}</p><pre tabindex="0" aria-label="Command">${example.command}</pre>
      <p><a href=${`/problem?${new URLSearchParams({ key: example.problem, device: example.device })}`}>Its problem</a></p></details>` : nothing}</section>`;
}
