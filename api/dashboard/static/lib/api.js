// Requests to this service: the token, refusals as errors with their sentence, and whether the service answers at all.

import { pieces } from "./pieces.js";

const TOKEN = "gemmtune.token";

/** Says `gone` when the service stops answering and `back` when it answers again. */
export const service = new EventTarget();
/** @type {Date | null} since when the service does not answer */
let goneSince = null;

/** A refusal of the service. `detail` is a sentence for people. */
export class Refusal extends Error {
  /** @param {number} status @param {string} detail @param {string} [scope] that the token lacks */
  constructor(status, detail, scope) {
    super(detail);
    this.status = status;
    this.scope = scope;
  }
}

/** The service does not answer. */
export class Gone extends Error {}

export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  /** @param {string} secret empty to forget it */
  set(secret) {
    // A header takes no other letters.
    if (secret) sessionStorage.setItem(TOKEN, encodeURI(secret));
    else sessionStorage.removeItem(TOKEN);
  },
};

/**
 * Sends a request.
 * @param {string} path
 * @param {RequestInit} [init]
 * @returns {Promise<Response>} with a good status
 * @throws {Refusal | Gone}
 */
export async function send(path, init = {}) {
  const headers = new Headers(init.headers);
  if (token.get()) headers.set("Authorization", `Bearer ${token.get()}`);
  let response;
  try {
    response = await fetch(path, { ...init, headers });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw lost();
  }
  // While the service restarts, a proxy answers for it.
  if (goneSince && response.status < 502) found();
  if (!response.ok) throw await refusal(response);
  return response;
}

/** @param {Response} response */
async function refusal(response) {
  const problem = await response.json().catch(() => ({}));
  const scope = /scope="(\w+)"/.exec(response.headers.get("WWW-Authenticate") ?? "")?.[1];
  const said = String(problem.detail ?? `the service answered ${response.status}`);
  const more = (problem.errors ?? []).map((/** @type {any} */ error) => error.detail).filter((/** @type {string} */ text) => !said.includes(text));
  // What is said to programmers is left out.
  const detail = [said, ...more].join("; ").replace("; see /openapi.json for the schema", "");
  return new Refusal(response.status, detail, scope);
}

/** @param {string} path @param {Record<string, unknown>} params */
export function address(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, String(value));
  }
  return query.size ? `${path}?${query}` : path;
}

/**
 * @template {string} P
 * @param {P} path @param {Record<string, unknown>} [params] @param {AbortSignal} [signal]
 * @returns {Promise<Api.Got<P>>}
 */
export async function get(path, params, signal) {
  const response = await send(address(path, params), { signal });
  return (path.endsWith(":columns") ? pieces(response) : response.json()).catch((error) => {
    throw signal?.aborted ? error : lost();
  });
}

/**
 * @template {string} P
 * @param {P} path @param {unknown} [body] @param {AbortSignal} [signal]
 * @returns {Promise<Api.Posted<P>>}
 */
export async function post(path, body, signal) {
  const init = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return (await send(path, { method: "POST", signal, ...init })).json();
}

/**
 * A picture of the service. A request for a document parses it: making one from a string is forbidden here.
 * @param {string} path @returns {Promise<SVGElement>}
 */
export function picture(path) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", path);
    request.responseType = "document";
    if (token.get()) request.setRequestHeader("Authorization", `Bearer ${token.get()}`);
    request.addEventListener("load", () => {
      const root = request.responseXML?.documentElement;
      if (request.status === 200 && root?.localName === "svg") resolve(/** @type {any} */ (document.importNode(root, true)));
      else send(path).then(() => reject(new Error("the picture can't be read")), reject);
    });
    request.addEventListener("error", () => reject(lost()));
    request.send();
  });
}

/** Called when a request or a stream finds that the service is gone. */
export function lost() {
  if (!goneSince) {
    goneSince = new Date();
    service.dispatchEvent(new CustomEvent("gone", { detail: goneSince }));
    void probe();
  }
  return new Gone("the service does not answer");
}

function found() {
  goneSince = null;
  service.dispatchEvent(new Event("back"));
}

async function probe() {
  while (goneSince) {
    await new Promise((wake) => setTimeout(wake, 1000));
    const answer = await fetch("/readyz").catch(() => null);
    if (answer?.ok && goneSince) found();
  }
}
