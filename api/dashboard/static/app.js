// Opens the page that the address names, in this document; asks for a token when the service does.

import { Gone, lost, Refusal, send, service, token } from "./lib/api.js";
import { Page } from "./lib/page.js";
import { at, forgotten, introduce } from "./lib/shell.js";
import { html, nothing, render } from "./lib/view.js";

/** @typedef {{open(page: Page): Promise<void> | void}} Module */
/** @type {Record<string, () => Promise<Module>>} */
const PAGES = {
  "/": () => import("./pages/ask.js"),
  "/compare": () => import("./pages/compare.js"),
  "/space": () => import("./pages/space.js"),
  "/rules": () => import("./pages/rules.js"),
  "/explain": () => import("./pages/explain.js"),
  "/campaigns": () => import("./pages/campaigns.js"),
  "/campaign": () => import("./pages/campaign.js"),
  "/fleet": () => import("./pages/fleet.js"),
  "/failures": () => import("./pages/failures.js"),
  "/ladder": () => import("./pages/ladder.js"),
  "/devices": () => import("./pages/devices.js"),
  "/device": () => import("./pages/device.js"),
  "/layouts": () => import("./pages/layouts.js"),
  "/problem": () => import("./pages/problem.js"),
  "/problems": () => import("./pages/problems.js"),
};

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
/** @type {Page | null} */
let shown = null;

/** @param {URL} url */
async function open(url) {
  const before = shown;
  before?.leave();
  const page = new Page(main, url, (name) => { document.title = name ? `${name} · gemmtune` : "gemmtune"; });
  shown = page;
  at(url.pathname);
  try {
    const module = await PAGES[url.pathname]().catch(async (error) => {
      await send("/readyz");
      // A newer version has other files.
      if (before) location.reload();
      throw error;
    });
    if (shown !== page) return;
    const opened = module.open(page);
    introduce();
    await opened;
  } catch (error) {
    if (shown !== page) return;
    if (error instanceof Refusal && error.status > 501) lost();
    page.show(() => failure(error));
  }
}

/** @param {unknown} error */
function failure(error) {
  if (error instanceof Refusal && [401, 403].includes(error.status)) return tokenForm(error);
  if (error instanceof Gone) return html`<h1>The service does not answer</h1><p>This page opens when it does.</p>`;
  if (!(error instanceof Refusal)) console.error(error);
  const detail = error instanceof Error ? error.message : String(error);
  return html`<h1>${error instanceof Refusal && error.status === 404 ? "Not here" : "This did not work"}</h1>
    <p class="sentence">${said(detail)}</p><p><a href="/problems">All problems</a> · <a href="/campaigns">All campaigns</a> · <a href="/">Ask for a config</a></p>`;
}

/** The service's words as a sentence; commands in backquotes are code. @param {string} words */
const said = (words) => `${words[0].toUpperCase()}${words.slice(1)}${/[.?!]$/.test(words) ? "" : "."}`.split("`")
  .map((part, place) => (place % 2 ? html`<code>${part}</code>` : part));

/** @param {Refusal} error */
function tokenForm(error) {
  const scope = error.scope || "read";
  return html`<form class="card narrow" @submit=${signIn}>
    <h1>${error.status === 401 ? "A token is needed" : `This needs a token with scope ${scope}`}</h1>
    <p>${token.get() ? said(error.message) : `This service answers only to tokens; this page needs one with the scope ${scope}.`}</p>
    <label>Token <input class="big" name="secret" type="password" autocomplete="off" required aria-describedby="token-note"></label>
    <p id="token-note" class="note">Only this tab keeps it. Whoever runs the service makes one with <code>gemmtune token create NAME --scope ${scope}</code>.</p>
    <button>Go on</button></form>`;
}

/** @param {SubmitEvent} event */
function signIn(event) {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.target);
  token.set(String(new FormData(form).get("secret")).trim());
  forgotten();
  void open(new URL(location.href));
}

/** Opens a link of ours in this document. @param {MouseEvent} event */
function followLink(event) {
  const link = /** @type {Element} */ (event.target).closest?.("a[href]");
  if (!(link instanceof HTMLAnchorElement) || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || !PAGES[url.pathname] || link.target || link.hasAttribute("download")) return;
  if (url.hash && url.pathname === location.pathname && url.search === location.search) return;
  event.preventDefault();
  go(url);
}

/** @param {URL} url */
export async function go(url) {
  history.pushState(null, "", url);
  render(nothing, main);
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
  await open(url);
}

// What fails in the background: the page keeps what it shows, unless it needs a token.
addEventListener("unhandledrejection", (event) => {
  const { reason } = event;
  if (reason instanceof Refusal || reason instanceof Gone || reason?.name === "AbortError") event.preventDefault();
  if (reason instanceof Refusal && reason.status === 401) shown?.show(() => tokenForm(reason));
});
document.addEventListener("click", followLink);
document.addEventListener("gemmtune:go", (event) => void go(new URL(/** @type {CustomEvent} */ (event).detail, location.href)));
addEventListener("popstate", () => void open(new URL(location.href)));
service.addEventListener("back", () => void open(new URL(location.href)));
void open(new URL(location.href));
