// Charts that wait for a frame. Each draws a few of them: input never waits long.

/** Milliseconds of a frame that charts may take; the others wait for the next one. */
const SHARE = 16;
/** @type {Map<object, () => void>} */
const waiting = new Map();

/** Draws a chart in one of the next frames, once. @param {object} chart @param {() => void} draw */
export function soon(chart, draw) {
  if (!waiting.size) requestAnimationFrame(frame);
  waiting.set(chart, draw);
}

function frame() {
  const began = performance.now();
  for (const [chart, draw] of waiting) {
    if (performance.now() - began > SHARE) return void requestAnimationFrame(frame);
    waiting.delete(chart);
    try {
      draw();
    } catch (error) {
      reportError(error);
    }
  }
}
