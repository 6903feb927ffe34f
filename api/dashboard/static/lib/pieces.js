// Large answers, read in pieces: `Response.json()` would hold the main thread until all of it is parsed.

/** Arrays of numbers that are longer than this, in characters, are parsed on their own. */
const LONG = 20_000;
/** Milliseconds of parsing between two pauses. */
const TURN = 8;
/** Stands for an array that is parsed on its own; no key or value of the API starts with it. */
const MARK = "\u0001";

/** Lets the browser draw and handle input. */
const pause = () => /** @type {any} */ (globalThis).scheduler?.yield?.() ?? new Promise((wake) => setTimeout(wake));

/** @param {Response} response @returns {Promise<any>} what its JSON says */
export async function pieces(response) {
  const text = await textOf(response);
  const { rest, arrays } = split(text);
  const parsed = [];
  let began = performance.now();
  for (const array of arrays) {
    parsed.push(JSON.parse(array));
    if (performance.now() - began < TURN) continue;
    await pause();
    began = performance.now();
  }
  return filled(JSON.parse(rest), parsed);
}

/** @param {Response} response */
async function textOf(response) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  const parts = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return parts.join("") + decoder.decode();
    parts.push(decoder.decode(value, { stream: true }));
  }
}

/**
 * Takes long arrays of numbers out of a document. A quote inside a string of JSON has a backslash before it, so `":[`
 * without one ends a key.
 * @param {string} text
 */
export function split(text) {
  const [arrays, kept] = [/** @type {string[]} */ ([]), /** @type {string[]} */ ([])];
  let from = 0;
  for (let at = text.indexOf('":['); at >= 0; at = text.indexOf('":[', at + 3)) {
    const [begin, end] = [at + 2, text.indexOf("]", at) + 1];
    if (end - begin < LONG || text[at - 1] === "\\") continue;
    const array = text.slice(begin, end);
    if (/["{[]/.test(array.slice(1))) continue;
    kept.push(text.slice(from, begin), `[${JSON.stringify(MARK)},${arrays.length}]`);
    arrays.push(array);
    from = end;
  }
  return { rest: kept.join("") + text.slice(from), arrays };
}

/** Puts the arrays back. @param {any} value @param {any[]} arrays @returns {any} */
function filled(value, arrays) {
  if (Array.isArray(value)) return value[0] === MARK ? arrays[value[1]] : value;
  if (value && typeof value === "object") for (const name of Object.keys(value)) value[name] = filled(value[name], arrays);
  return value;
}
