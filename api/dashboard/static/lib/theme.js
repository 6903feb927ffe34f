// The colour scheme: the system's, or the one chosen here. Canvases ask for colours by token.

const KEY = "gemmtune.scheme";
const SCHEMES = /** @type {const} */ (["auto", "light", "dark"]);
/** Says `change` when colours have changed. */
export const theme = new EventTarget();
/** @type {Map<string, string>} */
const known = new Map();
/** @type {HTMLElement | undefined} */
let probe;

/** @type {(typeof SCHEMES)[number] | undefined} */
let chosen;

export function scheme() {
  if (!chosen) {
    const kept = localStorage.getItem(KEY);
    chosen = SCHEMES.find((name) => name === kept) ?? "auto";
  }
  return chosen;
}

/** Takes the next scheme. */
export function turn() {
  const next = SCHEMES[(SCHEMES.indexOf(scheme()) + 1) % SCHEMES.length];
  chosen = next;
  localStorage.setItem(KEY, next);
  apply();
}

export function apply() {
  const name = scheme();
  document.documentElement.style.colorScheme = name === "auto" ? "light dark" : name;
  known.clear();
  theme.dispatchEvent(new Event("change"));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);

/**
 * The colour that a token has now. A canvas ignores `light-dark()` silently, so the browser resolves it first.
 * @param {string} name a custom property without its dashes
 */
export function colour(name) {
  let value = known.get(name);
  if (value === undefined) {
    if (!probe) {
      probe = document.createElement("i");
      probe.hidden = true;
      document.body.append(probe);
    }
    probe.style.color = `var(--${name})`;
    value = getComputedStyle(probe).color;
    known.set(name, value);
  }
  return value;
}

/** Red, green and blue of a token, 0 to 255. @param {string} name @returns {[number, number, number]} */
export function rgb(name) {
  const numbers = (colour(name).match(/[\d.]+/g) ?? []).map(Number);
  return [numbers[0] ?? 0, numbers[1] ?? 0, numbers[2] ?? 0];
}
