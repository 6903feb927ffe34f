// "Tune it": the command, or a campaign of one problem for the fleet.

import { may } from "../lib/shell.js";
import { parameters } from "../lib/problem.js";
import { html } from "../lib/view.js";

/** @param {any} answer @param {import("../lib/page.js").Page} page */
export function tuneIt(answer, page) {
  const again = answer.source === "measured";
  return html`<details ?open=${!again}><summary>${again ? "Tune it again" : "Tune it"}</summary>
    <pre tabindex="0" aria-label="Command">${answer.tune}</pre>
    <div class="row centre"><button type="button" ?disabled=${!may("submit")} @click=${create}>Create a campaign for the fleet</button>
    <span class="note" role="status">${may("submit") ? "" : "Your token lacks the scope submit."}</span></div></details>`;

  async function create(/** @type {any} */ event) {
    const note = event.currentTarget.parentElement.querySelector("[role=status]");
    const body = { name: answer.problem.key, problems: [parameters(answer.problem)], devices: [{ name: answer.device }] };
    try {
      const campaign = await page.post("/v1/campaigns", body);
      document.dispatchEvent(new CustomEvent("gemmtune:go", { detail: `/campaign?id=${campaign.id}` }));
    } catch (error) {
      note.textContent = /** @type {Error} */ (error).message;
    }
  }
}
