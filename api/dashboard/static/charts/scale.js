// Scales from data to pixels, linear or logarithmic, and round numbers along them.

/**
 * @typedef {{(value: number): number, invert(pixel: number): number, domain: [number, number], log: boolean}} Scale
 */

/**
 * @param {[number, number]} domain ends of the data; positive where `log`
 * @param {[number, number]} range ends in pixels
 * @param {boolean} [log]
 * @returns {Scale}
 */
export function scale(domain, range, log = false) {
  const bend = log ? Math.log : (/** @type {number} */ value) => value;
  const unbend = log ? Math.exp : (/** @type {number} */ value) => value;
  const [low, high] = [bend(domain[0]), bend(domain[1])];
  const slope = (range[1] - range[0]) / (high - low || 1);
  const at = (/** @type {number} */ value) => range[0] + (bend(value) - low) * slope;
  return Object.assign(at, { invert: (/** @type {number} */ pixel) => unbend(low + (pixel - range[0]) / slope), domain, log });
}

/**
 * Least and largest finite value, with some room.
 * @param {ArrayLike<number | null>} values
 * @param {boolean} [log]
 * @param {number} [room] share of the span on each side
 * @returns {[number, number]}
 */
export function extent(values, log = false, room = 0.04) {
  let low = Infinity;
  let high = -Infinity;
  for (let place = 0; place < values.length; place++) {
    const value = values[place];
    if (value === null || !Number.isFinite(value) || (log && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return log ? [1, 10] : [0, 1];
  if (low === high) return log ? [low / 1.5, high * 1.5] : [low - (Math.abs(low) * 0.1 || 1), high + (Math.abs(high) * 0.1 || 1)];
  if (log) {
    const factor = (high / low) ** room;
    return [low / factor, high * factor];
  }
  return [low - (high - low) * room, high + (high - low) * room];
}

/** Round numbers along a scale. @param {Scale} to @param {number} most @returns {number[]} */
export function ticks(to, most) {
  const [low, high] = to.domain;
  if (to.log && high / low > 3) return logTicks(low, high, most);
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough) ?? power * 10;
  const found = [];
  for (let place = Math.ceil(low / step); place * step <= high * (1 + 1e-12); place++) found.push(+(place * step).toPrecision(12));
  return found;
}

/** @param {number} low @param {number} high @param {number} most */
function logTicks(low, high, most) {
  for (const steps of [[1, 1.5, 2, 3, 4, 5, 6, 8], [1, 2, 5], [1, 3], [1]]) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) {
      for (const step of steps) {
        const value = +(step * 10 ** power).toPrecision(6);
        if (value >= low && value <= high) found.push(value);
      }
    }
    if (found.length <= most) return found;
    if (steps.length === 1) return found.filter((_, place) => place % Math.ceil(found.length / most) === 0);
  }
  return [];
}

/** @param {number} value */
export function short(value) {
  const size = Math.abs(value);
  if (size >= 1e12) return `${+(value / 1e12).toPrecision(3)}T`;
  if (size >= 1e9) return `${+(value / 1e9).toPrecision(3)}G`;
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  return size >= 1e4 ? `${+(value / 1e3).toPrecision(3)}k` : String(+value.toPrecision(4));
}
