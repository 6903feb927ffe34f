// What all charts share: a heading, one sentence, the picture, a walk through its points by keyboard, and a table.

import { theme } from "../lib/theme.js";
import { go, html, nothing, render } from "../lib/view.js";
import { soon } from "./queue.js";
import { asTable } from "./table.js";

/** @typedef {{x: number, y: number, text: string, href?: string}} Point in pixels of the plot */

/** A chart draws what its property `data` says. Subclasses say how. */
export class Chart extends HTMLElement {
  /** @type {any} */
  #data = null;
  #tabled = false;
  #width = 0;
  #resizes = new ResizeObserver((entries) => {
    const width = Math.floor(entries[entries.length - 1].contentRect.width);
    if (!width || width === this.#width) return;
    this.#width = width;
    this.later();
  });
  /** The point that the keyboard or the mouse is on; -1 for none. */
  place = -1;
  #restyle = () => this.later();

  /** @param {number} _width @returns {number} */
  height(_width) { return 260; }
  /** @param {CanvasRenderingContext2D} _pen @param {number} _width @param {number} _height */
  draw(_pen, _width, _height) {}
  get plotWidth() { return /** @type {HTMLElement} */ (this.querySelector(".plot")).clientWidth; }
  count() { return 0; } // points that the keyboard walks through
  get walkable() { return this.count() > 0; }
  /** @param {number} _place @returns {Point | null} */
  point(_place) { return null; }
  /** The point under the mouse. @param {number} _x @param {number} _y @returns {number} */
  hit(_x, _y) { return -1; }
  /** @returns {import("./table.js").Table | null} */
  table() { return null; }
  /** Legend and controls above the plot. @returns {unknown} */
  legend() { return nothing; }
  /** Draws into `plot` where the picture is no plain canvas. @param {HTMLElement} plot @param {number} width */
  picture(plot, width) {
    const canvas = plot.querySelector("canvas") ?? plot.insertBefore(document.createElement("canvas"), plot.firstChild);
    const height = this.height(width);
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.draw(pen, width, height);
  }

  get data() { return this.#data; }
  set data(value) {
    if (value === this.#data) return;
    this.#data = value;
    this.place = -1;
    this.later();
  }

  connectedCallback() {
    this.#resizes.observe(this);
    theme.addEventListener("change", this.#restyle);
    this.later();
  }

  disconnectedCallback() {
    this.#resizes.disconnect();
    theme.removeEventListener("change", this.#restyle);
  }

  later() {
    soon(this, () => this.isConnected && this.#data && this.#update());
  }

  #update() {
    const { title, sentence } = this.data;
    const walk = this.walkable ? " Arrow keys walk through the points, Enter opens one, Escape leaves." : "";
    render(html`<figure>
      <figcaption><h2>${title}</h2>${this.legend()}</figcaption>
      <div class="plot" tabindex=${this.walkable ? 0 : nothing} role=${this.walkable ? "application" : "img"} aria-label=${`${title}. ${sentence}${walk}`}
        @pointermove=${this.#moved} @pointerleave=${() => this.go(-1)} @click=${this.#clicked} @keydown=${this.#pressed}>
        <div class="ring" hidden></div><div class="tip" hidden></div></div>
      <p class="says">${sentence}</p><p class="visually-hidden" aria-live="polite"></p>
      ${this.#tabled ? asTable(this.table(), title) : nothing}
      <button type="button" class="quiet small" aria-expanded=${String(this.#tabled)} @click=${this.#turn}>${this.#tabled ? "Hide the table" : "As a table"}</button>
    </figure>`, this);
    const plot = /** @type {HTMLElement} */ (this.querySelector(".plot"));
    // Asked for once: afterwards the observer tells, and nothing is laid out in the middle of a frame.
    this.#width ||= Math.floor(plot.getBoundingClientRect().width);
    if (this.#width) this.picture(plot, this.#width);
    this.go(this.place < this.count() ? this.place : -1);
  }

  #turn = () => {
    this.#tabled = !this.#tabled;
    this.later();
  };

  /** Puts the ring and the tip on a point; -1 takes them away. @param {number} place */
  go(place) {
    this.place = place;
    const [ring, tip] = ["ring", "tip"].map((name) => /** @type {HTMLElement | null} */ (this.querySelector(`.${name}`)));
    const point = place < 0 ? null : this.point(place);
    if (!ring || !tip) return;
    ring.hidden = tip.hidden = !point;
    if (!point) return;
    ring.style.transform = `translate(${point.x}px, ${point.y}px)`;
    tip.textContent = point.text;
    const width = /** @type {HTMLElement} */ (tip.parentElement).clientWidth;
    const left = point.x > width / 2 ? point.x - tip.offsetWidth - 10 : point.x + 10;
    tip.style.transform = `translate(${Math.max(0, Math.min(left, width - tip.offsetWidth))}px, ${point.y + 8}px)`;
  }

  #moved = (/** @type {PointerEvent} */ event) => {
    const box = /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
    const place = this.hit(event.clientX - box.left, event.clientY - box.top);
    if (place !== this.place) this.go(place);
  };

  #clicked = () => this.open(this.place);

  #pressed = (/** @type {KeyboardEvent} */ event) => {
    const steps = /** @type {Record<string, number>} */ ({ ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10 });
    const last = this.count() - 1;
    let place = this.place;
    if (steps[event.key]) place = place < 0 ? 0 : Math.max(0, Math.min(last, place + steps[event.key]));
    else if (event.key === "Home") place = 0;
    else if (event.key === "End") place = last;
    else if (event.key === "Escape") place = -1;
    else if (event.key === "Enter") return this.open(this.place);
    else return;
    event.preventDefault();
    this.go(place);
    const spoken = /** @type {HTMLElement} */ (this.querySelector("[aria-live]"));
    spoken.textContent = place < 0 ? "" : this.point(place)?.text ?? "";
  };

  /** @param {number} place */
  open(place) {
    const href = place < 0 ? null : this.point(place)?.href;
    if (href) go(href);
  }
}
