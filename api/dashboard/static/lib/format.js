// Numbers, moments and problems as people write them.

const SCALES = /** @type {const} */ ([[1e12, "T"], [1e9, "G"], [1e6, "M"]]);

/** 12,345.6. `Intl` would take 30 ms before the first number. @param {string} text */
function grouped(text) {
  const [before, after] = text.split(".");
  const groups = before.replace(/\B(?=(\d{3})+$)/g, ",");
  return after ? `${groups}.${after}` : groups;
}

/** 33,432. @param {number} value */
export const whole = (value) => grouped(value.toFixed(0));

/** @param {number | null | undefined} value @param {number} [digits] significant digits, at least those of the whole part */
export function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const before = Math.max(1, Math.floor(Math.log10(Math.abs(value) || 1)) + 1);
  const text = value.toFixed(Math.max(0, digits - before));
  return grouped(text.includes(".") ? text.replace(/\.?0+$/, "") : text);
}

/** With four digits, zeros included: 213.0. @param {number} value */
export function fixed(value) {
  const digits = Math.max(0, 3 - Math.max(0, Math.floor(Math.log10(Math.abs(value) || 1))));
  return grouped(value.toFixed(digits));
}

/** 34.4 T, 2.0 G, 33,432. @param {number | null | undefined} value */
export function count(value) {
  if (value === null || value === undefined) return "–";
  const scale = SCALES.find(([least]) => value >= Math.max(least, 1e7));
  return scale ? `${(value / scale[0]).toFixed(1)}\u00a0${scale[1]}` : whole(value);
}

/** 1 problem, 2 problems. @param {number} value @param {string} word */
export const many = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

/** @param {number | null | undefined} value */
export const us = (value) => (value === null || value === undefined ? "–" : `${fixed(value)} µs`);

/** @param {number | null | undefined} value a share */
export const percent = (value, digits = 0) =>
  value === null || value === undefined ? "–" : `${(value * 100).toFixed(digits)} %`;

/** @param {number | null | undefined} value */
export const times = (value) => (value === null || value === undefined ? "–" : `${value.toFixed(3)}×`);

/** @param {number} value */
export function bytes(value) {
  if (value >= 2 ** 30) return `${number(value / 2 ** 30, 3)} GiB`;
  if (value >= 2 ** 20) return `${number(value / 2 ** 20, 3)} MiB`;
  return value >= 10240 ? `${number(value / 1024, 4)} KiB` : `${whole(value)} B`;
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return `${number(seconds, 2)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${number(seconds / 3600, 2)} h` : `${Math.round(seconds / 86400)} days`;
}

/** How long ago, in words. @param {string} moment */
export function ago(moment) {
  const seconds = (Date.now() - new Date(moment).getTime()) / 1000;
  return seconds < 5 ? "just now" : `${duration(seconds)} ago`;
}

/** @param {string | number | Date} moment */
export const clock = (moment) =>
  new Date(typeof moment === "number" ? moment * 1000 : moment).toISOString().slice(0, 19).replace("T", " ");

/**
 * Whether an interval of a ratio lies above 1, below, or around it.
 * @param {number | null | undefined} low @param {number | null | undefined} high
 * @returns {"faster" | "slower" | "tied" | "none"}
 */
export function verdict(low, high) {
  if (low == null || high == null) return "none";
  return low > 1 ? "faster" : high < 1 ? "slower" : "tied";
}

/** A sign for each verdict: told apart without colour. */
export const SIGNS = /** @type {Record<string, string>} */ ({ faster: "▲", slower: "▼", tied: "◆", none: "–" });

/** @param {number[]} values */
export const total = (values) => values.reduce((sum, value) => sum + value, 0);

/** @param {number[]} values positive ones */
export const geometricMean = (values) =>
  values.length ? Math.exp(total(values.map(Math.log)) / values.length) : null;

/** Student's t, as in `tuner/evidence/stats.py`. */
const STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];

/** The geometric mean and its 95 % interval. @param {number[]} values two at least */
export function meanWithin(values) {
  const [logs, free] = [values.map(Math.log), values.length - 1];
  const middle = total(logs) / values.length;
  const student = STUDENT[free - 1] ?? 1.96 + 2.372384 / free + 2.822707 / free ** 2;
  const reach = student * Math.sqrt(total(logs.map((log) => (log - middle) ** 2)) / free / values.length);
  return [0, -reach, reach].map((away) => Math.exp(middle + away));
}

/** @param {number[]} sorted ascending @param {number} share */
export function quantile(sorted, share) {
  const place = (sorted.length - 1) * share;
  const low = Math.floor(place);
  return sorted[low] + (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]) * (place - low);
}
