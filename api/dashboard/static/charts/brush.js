// A rectangle drawn over points selects them.

const LEAST = 6;
/** @type {WeakSet<HTMLElement>} */
const brushed = new WeakSet();

/**
 * @param {HTMLElement} plot
 * @param {() => {scales: any, chosen: (box: [number, number, number, number] | null) => void} | null} current null where nothing can be selected
 */
export function brush(plot, current) {
  if (brushed.has(plot)) return;
  brushed.add(plot);
  const box = plot.appendChild(document.createElement("div"));
  box.className = "brush";
  box.hidden = true;
  /** @type {{x: number, y: number} | null} */
  let from = null;
  const at = (/** @type {PointerEvent} */ event) => {
    const edge = plot.getBoundingClientRect();
    return { x: event.clientX - edge.left, y: event.clientY - edge.top };
  };
  plot.addEventListener("pointerdown", (event) => {
    if (!current() || event.button || event.pointerType === "touch") return;
    from = at(event);
    addEventListener("pointerup", ended, { once: true });
  });
  plot.addEventListener("pointermove", (event) => {
    if (!from) return;
    const to = at(event);
    box.hidden = Math.hypot(to.x - from.x, to.y - from.y) < LEAST;
    Object.assign(box.style, {
      transform: `translate(${Math.min(from.x, to.x)}px, ${Math.min(from.y, to.y)}px)`,
      width: `${Math.abs(to.x - from.x)}px`, height: `${Math.abs(to.y - from.y)}px`,
    });
  });
  const ended = (/** @type {PointerEvent} */ event) => {
    if (!from) return;
    const [start, to] = [from, at(event)];
    from = null;
    const spec = current();
    if (box.hidden || !spec) return;
    box.hidden = true;
    plot.addEventListener("click", (click) => click.stopPropagation(), { once: true, capture: true });
    const [xs, ys] = [[start.x, to.x].map(spec.scales.x.invert), [start.y, to.y].map(spec.scales.y.invert)];
    spec.chosen([Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)]);
  };
}
