// Rules: every rule with its sentence and its source.

import { tableOf } from "../charts/table.js";
import { Refusal } from "../lib/api.js";
import { html, nothing } from "../lib/view.js";
import { goWith } from "../parts/shape.js";

/** @param {import("../lib/page.js").Page} page */
export async function open(page) {
  page.title("Rules");
  const id = page.param("id");
  const family = page.param("family");
  if (!["", "legal", "worth"].includes(page.param("kind"))) throw new Refusal(404, `No rule is “${page.param("kind")}”: there are legal and worth.`);
  const { items } = await page.get("/v1/rules");
  const families = [...new Set(items.map((/** @type {any} */ rule) => rule.family))];
  if (family && !families.includes(family)) throw new Refusal(404, `No family “${family}” has rules: there are ${families.join(", ")}.`);
  const one = id ? items.find((/** @type {any} */ rule) => rule.id === id && (!family || rule.family === family)) : null;
  if (id && !one) await page.get(`/v1/rules/${encodeURIComponent(id)}`).then(() => { throw new Refusal(404, `No rule of ${family} is called ${id}.`); });
  page.show(() => {
    const find = page.param("find").toLowerCase();
    const kind = page.param("kind");
    const shown = items.filter((/** @type {any} */ rule) => (!family || rule.family === family) && (!kind || rule.kind === kind)
      && (!find || JSON.stringify(rule).toLowerCase().includes(find)));
    return html`<h1>${one ? one.id : "Which rules are there?"}</h1>
      ${one ? html`<section class="card"><p class="sentence"><strong>${one.sentence}</strong></p>
        <p>${one.kind === "legal" ? "A config that breaks it does not run, or computes garbage." : "A config that breaks it runs, but another is surely as fast."} It reads ${
          one.reads.map((/** @type {string} */ name) => html`<code>${name}</code> `)}</p><p class="soft">Source: ${one.source}</p></section>` : nothing}
      <div class="filters"><label>Find <input type="search" .value=${page.param("find")} placeholder="smem" @input=${(/** @type {any} */ event) => page.set({ find: event.target.value })}></label>
        <fieldset><legend>Family</legend>${families.map((name) => html`<button type="button" class="chip" aria-pressed=${String(name === family)} @click=${() => goWith(page, { family: name === family ? "" : name, id: "" })}>${name}</button>`)}</fieldset>
        <fieldset><legend>Kind</legend>${["legal", "worth"].map((name) => html`<button type="button" class="chip" aria-pressed=${String(name === kind)} @click=${() => page.set({ kind: name === kind ? "" : name })}>${name === "legal" ? "✕ legality" : "◇ worth"}</button>`)}</fieldset></div>
      <section class="card">${tableOf("Rules", ["Rule", "Kind", "Says", "Source"],
      shown.map((/** @type {any} */ rule) => html`<tr><th scope="row"><a href=${`/rules?id=${encodeURIComponent(rule.id)}&family=${rule.family}`}><code>${rule.id}</code></a><br><span class="note">${rule.family}</span></th>
          <td class=${`nowrap ${rule.kind === "legal" ? "loss" : "tied"}`}>${rule.kind === "legal" ? "✕ legality" : "◇ worth"}</td><td>${rule.sentence}</td><td class="soft">${rule.source}</td></tr>`))}
        <p class="says">${shown.length} of ${items.length} rules. ✕ Legality: without it a config can’t run. ◇ Worth: it keeps slow configs from being tried.</p></section>`;
  });
}
