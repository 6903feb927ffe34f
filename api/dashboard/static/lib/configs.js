// Names for configs that stand beside each other: only what tells them apart.

/** @typedef {{family: string, knobs: Record<string, string | number>}} Config */

/** Knobs in the order in which people ask for them; the others follow. */
const ORDER = ["tile", "stages", "cluster", "custom", "schedule", "raster", "raster_group", "split_k", "stream_k", "epilogue", "cache_hint", "pdl"];
const SHORT = /** @type {Record<string, string>} */ ({
  stages: "s", raster_group: "g", split_k: "split ", consumer_warpgroups: "wg", producer_registers: "regs", stream_k: "stream-K ", l2_promotion: "L2 ",
});
const VALUES = /** @type {Record<string, string>} */ ({ cooperative: "coop", along_m: "by m", along_n: "by n" });
const MOST = 4;

/** Knobs that differ between some of the configs of one family. @param {Config[]} configs @returns {string[]} */
function varying(configs) {
  /** @type {Map<string, Set<string | number>>} */
  const seen = new Map();
  for (const { knobs } of configs) {
    for (const [name, value] of Object.entries(knobs)) seen.set(name, (seen.get(name) ?? new Set()).add(value));
  }
  return [...seen].filter(([, values]) => values.size > 1).map(([name]) => name);
}

/** Short names of configs. @param {Config[]} configs @returns {string[]} */
export function names(configs) {
  return configs.map((config) => nameOf(config, varying(configs.filter(({ family }) => family === config.family))));
}

/** @param {Config} config @param {string[]} told knobs that tell it apart */
export function nameOf(config, told) {
  const { family, knobs } = config;
  const { tile_m: m, tile_n: n, tile_k: k } = knobs;
  const parts = family === "cublaslt" ? ["cuBLASLt"] : m && n ? [`${m}×${n}${told.includes("tile_k") ? `×${k}` : ""}`] : [];
  const cluster = ["cluster_m", "cluster_n"].some((name) => told.includes(name)) ? ["cluster"] : [];
  const others = [...told.filter((name) => !/^(tile|cluster)_/.test(name)), ...cluster].sort((a, b) => rank(a) - rank(b)).slice(0, MOST);
  for (const name of others) {
    if (name === "cluster" && knobs.cluster_m) parts.push(`c${knobs.cluster_m}×${knobs.cluster_n}`);
    else if (knobs[name] !== undefined) parts.push(typeof knobs[name] === "number" ? `${SHORT[name] ?? `${name} `}${knobs[name]}` : VALUES[knobs[name]] ?? String(knobs[name]));
  }
  return parts.join(" ") || family;
}

/** @param {string} name */
const rank = (name) => (ORDER.indexOf(name) < 0 ? 99 : ORDER.indexOf(name));

/** Reads what `written` writes; the service refuses a part without a value. @param {string} text @returns {Record<string, string | number>} */
export const knobsOf = (text) => Object.fromEntries(text.split(",").filter(Boolean).map((part) => {
  const [name, value = ""] = part.split("=");
  return [name, /^-?\d+$/.test(value) ? Number(value) : value];
}));

/** As on the command line: `tile_m=128,…`. @param {Config} config */
export const written = (config) => Object.entries(config.knobs).map(([name, value]) => `${name}=${value}`).join(",");
