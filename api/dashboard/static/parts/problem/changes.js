import "../../charts/changes.js";
import { html, nothing } from "../../lib/view.js";

/** What each single change of the winner costs. @param {import("../../lib/page.js").Page} _page @param {any} got */
export function changesCard(_page, got) {
  const why = got.importance;
  if (!why) return html`<h2>One change at a time</h2>`;
  if (why.refused) return html`<h2>One change at a time</h2><p class="note">${why.refused}</p>`;
  const shares = new Map(why.importances.map((/** @type {any} */ entry) => [entry.knob, entry.share]));
  const order = [...new Set(why.changes.map((/** @type {any} */ change) => change.knob))].sort((a, b) => (shares.get(b) ?? 0) - (shares.get(a) ?? 0));
  const knobs = order.map((name) => {
    const changes = why.changes.filter((/** @type {any} */ change) => change.knob === name && change.ratio !== null);
    const share = shares.get(name);
    return { name: `${name}=${why.winner.knobs[name] ?? "?"}`, share: share >= 0.01 ? `${(share * 100).toFixed(0)} %` : "",
      changes: changes.map((/** @type {any} */ change) => ({ ...change, measured: change.source === "measured" })) };
  }).filter((knob) => knob.changes.length);
  const illegal = why.changes.filter((/** @type {any} */ change) => change.source === "illegal").length;
  const top = order.filter((name) => (shares.get(name) ?? 0) >= 0.1);
  if (!knobs.length) return nothing;
  return html`<chart-changes .data=${{
    title: "One change at a time", knobs,
    sentence: `${top.length ? `${top.join(", ").replace(/, ([^,]*)$/, " and $1")} decided most. ` : ""}Each mark is the winner with one knob changed: ● measured, ○ expected with its 90 % interval. The ${illegal} illegal changes are left out. Left of “same” is faster. A share is how much of the spread of times that knob explains.`,
  }}></chart-changes>`;
}
