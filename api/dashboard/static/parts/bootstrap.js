// The ratio of two medians with an interval, by resampling; the same seed each time, so that a page shows the same twice.

const RESAMPLES = 1000;

/** @param {number[]} over @param {number[]} under @returns {{value: number, low: number, high: number} | null} */
export function bootstrap(over, under) {
  if (!over.length || !under.length) return null;
  let state = 12345;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  const drawn = (/** @type {number[]} */ samples) => median(samples.map(() => samples[Math.floor(next() * samples.length)]));
  const ratios = Array.from({ length: RESAMPLES }, () => drawn(over) / drawn(under)).sort((a, b) => a - b);
  return { value: median(over) / median(under), low: ratios[Math.floor(RESAMPLES * 0.025)], high: ratios[Math.floor(RESAMPLES * 0.975)] };
}

/** @param {number[]} values */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
