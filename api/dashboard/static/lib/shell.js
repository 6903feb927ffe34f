// What surrounds every page: navigation, colour scheme, who asks, and a line when the service does not answer.

import { get, Refusal, service, token } from "./api.js";
import { clock, duration } from "./format.js";
import { apply, scheme, turn } from "./theme.js";
import { html, nothing, render } from "./view.js";

/** Pages that belong to another one's entry. */
const UNDER = /** @type {Record<string, string>} */ ({
  "/problem": "/problems", "/compare": "/problems", "/rules": "/space", "/campaign": "/campaigns", "/device": "/devices",
});
const [who, banner] = ["who", "gone"].map((name) => /** @type {HTMLElement} */ (document.getElementById(name)));
/** @type {Date | null} */
let gone = null;
/** @type {{name: string, tokens: boolean, scopes: string[]} | null} */
let caller = null;
let demo = false;
let introduced = false;

/** @param {string} scope whether the caller's token has it */
export const may = (scope) => !caller || caller.scopes.includes(scope) || caller.scopes.includes("admin");

/** Marks the page that is shown. @param {string} shown */
export function at(shown) {
  for (const link of document.querySelectorAll("nav a")) {
    link.ariaCurrent = link.getAttribute("href") === (UNDER[shown] ?? shown) ? "page" : null;
  }
}

/** Asks anew who the caller is when the next page opens. */
export function forgotten() {
  introduced = false;
}

/** Asks who the caller is, behind the first page's own requests: to read the chosen scheme may take as long as they do. */
export function introduce() {
  if (introduced) return;
  introduced = true;
  void ask().catch(() => {});
  apply();
  draw();
}

async function ask() {
  const known = (/** @type {unknown} */ error) => {
    if (!(error instanceof Refusal)) throw error;
    return null;
  };
  [caller, demo] = await Promise.all([
    get("/v1/caller").catch(known), get("/v1/service").then((answer) => answer.demo, known).then(Boolean),
  ]);
  draw();
}

function draw() {
  render(html`
    ${demo ? html`<span class="badge recorded" title="A recorded campaign is replayed as if it were live. No GPU is used.">demo</span>` : nothing}
    ${caller?.tokens ? html`<button class="quiet" @click=${forget} title="Forget the token">${caller.name} · sign out</button>` : nothing}
    <button class="quiet" @click=${() => { turn(); draw(); }}>Scheme: ${scheme()}</button>`, who);
  render(gone ? html`<p class="banner" role="status">The service has not answered since ${clock(gone)} UTC
    (${duration((Date.now() - gone.getTime()) / 1000)}). What you see is from before; the page resumes by itself.</p>` : nothing, banner);
}

function forget() {
  token.set("");
  location.reload();
}

service.addEventListener("gone", (event) => {
  gone = /** @type {CustomEvent} */ (event).detail;
  draw();
});
service.addEventListener("back", () => {
  gone = null;
  draw();
});
setInterval(() => gone && draw(), 5000);
