// One visit of one page: its state in the URL, its requests, its streams. All end when another page is opened.

import { get, post } from "./api.js";
import { follow } from "./stream.js";
import { html, render } from "./view.js";

/**
 * A call that runs once at a time; calls that come meanwhile are one further call after it.
 * @param {() => Promise<unknown>} action @returns {() => Promise<void>}
 */
export function latest(action) {
  let [running, again] = [false, false];
  return async function call() {
    again = running;
    if (running) return;
    running = true;
    await action().finally(() => {
      running = false;
      if (again) void call();
    });
  };
}

export class Page {
  #visit = new AbortController();
  #view = /** @type {() => unknown} */ (() => html``);
  #drawing = false;

  /** @param {HTMLElement} main @param {URL} url @param {(title: string) => void} named called with the page's title */
  constructor(main, url, named) {
    this.main = main;
    this.path = url.pathname;
    this.query = url.searchParams;
    this.title = named;
    this.signal = this.#visit.signal;
  }

  /** Sets what the page shows; `redraw` evaluates it again. @param {() => unknown} view */
  show(view) {
    this.#view = view;
    this.#draw();
  }

  /** Shows the view again, once before the next frame. */
  redraw() {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.#draw();
    });
  }

  #draw() {
    if (!this.signal.aborted) render(this.#view(), this.main);
  }

  /** A parameter of the URL. @param {string} name */
  param(name, otherwise = "") {
    return this.query.get(name) ?? otherwise;
  }

  /**
   * Changes parameters of the URL; empty ones leave it. The page is drawn again.
   * @param {Record<string, string | number | null>} changes
   * @param {boolean} [step] a step that the browser's Back takes back
   */
  set(changes, step = false) {
    // What was typed last may be asked after another page has opened.
    if (this.signal.aborted) return;
    for (const [name, value] of Object.entries(changes)) {
      if (value === "" || value === null) this.query.delete(name);
      else this.query.set(name, String(value));
    }
    const url = this.query.size ? `${this.path}?${this.query}` : this.path;
    history[step ? "pushState" : "replaceState"](null, "", url);
    this.redraw();
  }

  /** @template {string} P @param {P} path @param {Record<string, unknown>} [params] */
  get(path, params) {
    return get(path, params, this.signal);
  }

  /** @template {string} P @param {P} path @param {unknown} [body] */
  post(path, body) {
    return post(path, body, this.signal);
  }

  /**
   * Follows the service's events while the page is open.
   * @param {Record<string, (data: any) => void>} handlers
   * @param {Record<string, unknown>} [filters]
   */
  live(handlers, filters = {}) {
    void follow("/v1/events", filters, handlers, this.signal);
  }

  /** Calls back while the page is open. @param {number} seconds @param {() => void} action */
  every(seconds, action) {
    const timer = setInterval(action, seconds * 1000);
    this.signal.addEventListener("abort", () => clearInterval(timer));
  }

  leave() {
    this.#visit.abort();
  }
}
