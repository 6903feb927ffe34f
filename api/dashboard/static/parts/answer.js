// The answer to a question: what to run, how fast, from where, and as code.

import { address } from "../lib/api.js";
import { written } from "../lib/configs.js";
import { parameters, title } from "../lib/problem.js";
import { may } from "../lib/shell.js";
import { go, html, nothing } from "../lib/view.js";
import { headline, knobChips, summary } from "./facts.js";
import { snippets } from "./snippets.js";

const TRUST = /** @type {Record<string, string>} */ ({
  measured: "Yes: every element was verified and the time measured at this size.",
  stale: "With care: verified and measured at this size, by a kernel that has changed since.",
  recorded: "With care: verified and measured at this size, on a GPU of this model elsewhere.",
  nearest: "With care: legal here, but measured at another shape.",
  predicted: "With care: legal here, but nobody has measured it. The model ranks it first.",
  none: "There is nothing to run.",
});

/** @param {any} answer @param {any} defaults @param {import("../lib/page.js").Page} page */
export function answered(answer, defaults, page) {
  const policy = page.param("policy");
  const link = address("/problem", { key: answer.problem.key, device: answer.device, policy });
  return html`<section class="card answer" aria-live="polite" aria-label="Answer">
    <h2>${title(answer.problem)} on ${answer.device}</h2>
    ${summary(answer)}
    <p class="sentence"><strong>May I trust it?</strong> ${TRUST[answer.source]}</p>
    <ul class="sentence soft">${answer.grounds.map((/** @type {string} */ ground) => html`<li>${ground}</li>`)}</ul>
    ${answer.config ? html`<h3>${headline(answer.config)}</h3>${knobChips(answer.config.knobs, defaults)}` : nothing}
    <p class="row centre">${["measured", "stale"].includes(answer.source) ? html`<a href=${link}>Why this one, and how sure?</a>` : nothing}
      ${answer.config ? html`<a href=${explainLink(answer)}>Change it and see what breaks</a>` : nothing}</p>
    ${snippets({ ...answer, asked: policy })}${tuneIt(answer, page)}</section>`;
}

/** @param {any} answer */
function explainLink(answer) {
  return address("/explain", { problem: answer.problem.key, family: answer.config.family, device: answer.device, knobs: written(answer.config) });
}

/** The command that tunes it, or a campaign of one problem for the fleet. @param {any} answer @param {import("../lib/page.js").Page} page */
function tuneIt(answer, page) {
  const again = answer.source === "measured";
  return html`<details ?open=${!again}><summary>${again ? "Tune it again" : "Tune it"}</summary>
    <pre tabindex="0" aria-label="Command">${answer.tune}</pre>
    <div class="row centre"><button type="button" ?disabled=${!may("submit")} @click=${create}>Create a campaign for the fleet</button>
    <span class="note" role="status">${may("submit") ? "" : "Your token lacks the scope submit."}</span></div></details>`;

  async function create(/** @type {any} */ event) {
    const button = event.currentTarget;
    // A double click is one campaign.
    button.disabled = true;
    const body = { name: answer.problem.key, problems: [parameters(answer.problem)], devices: [{ name: answer.device }] };
    try {
      const campaign = await page.post("/v1/campaigns", body);
      go(`/campaign?id=${campaign.id}`);
    } catch (error) {
      button.disabled = false;
      button.nextElementSibling.textContent = /** @type {Error} */ (error).message;
    }
  }
}
