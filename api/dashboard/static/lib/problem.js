// Problems: read from keys and from what people type, and written as titles and as parameters.

import { Refusal } from "./api.js";

/** @typedef {{m: number, n: number, k: number, dtype: string, layout: string, batch?: number, epilogue?: string, kind?: string}} Fields */

const LAYOUTS = ["nt", "nn", "tn", "tt"];
/** A, B, C and accumulator of the dtype words. */
const OPERANDS = /** @type {Record<string, string>} */ ({
  "bf16,bf16,bf16,f32": "bf16", "fp16,fp16,fp16,f32": "fp16", "tf32,tf32,f32,f32": "tf32",
  "fp8_e4m3,fp8_e4m3,bf16,f32": "fp8_e4m3", "fp8_e5m2,fp8_e4m3,bf16,f32": "fp8_e5m2",
  "fp8_e4m3,fp8_e5m2,bf16,f32": "fp8_e4m3_e5m2", "fp8_e4m3,fp8_e4m3,bf16,f32_promoted": "fp8_e4m3_promoted",
  "fp8_e5m2,fp8_e4m3,bf16,f32_promoted": "fp8_e5m2_promoted", "fp16,fp16,fp16,fp16": "fp16_acc16",
  "fp8_e4m3,fp8_e4m3,fp16,fp16": "fp8_e4m3_acc16", "fp8_e5m2,fp8_e4m3,fp16,fp16": "fp8_e5m2_acc16",
  "int8,int8,s32,s32": "int8", "uint8,uint8,s32,s32": "uint8",
});
const WORDS = Object.values(OPERANDS);
const KEY = /^gemm:([\w,]+):(\w\w):(\d+)x(\d+)x(\d+):b(\d+):([\w+]+)$/;

/** @param {string} key @returns {Fields | null} null for other kinds and for what is no key */
function fieldsOfKey(key) {
  const found = KEY.exec(key);
  if (!found) return null;
  const [, operands, layout, m, n, k, batch, epilogue] = found;
  return { m: +m, n: +n, k: +k, dtype: OPERANDS[operands] ?? operands, layout, batch: +batch, epilogue };
}

/**
 * The fields of a problem; of one of another kind than `gemm` from its studies.
 * @param {import("./page.js").Page} page @param {string} key @returns {Promise<Fields>}
 */
export async function problemFields(page, key) {
  const fields = fieldsOfKey(key);
  if (fields) return fields;
  const { items } = await page.get("/v1/studies", { problem: key, limit: 1 });
  if (!items.length) throw new Refusal(404, `No problem has the key “${key}”. A key looks like gemm:bf16,bf16,bf16,f32:nt:4096x4096x4096:b1:none.`);
  return /** @type {any} */ (items[0].problem);
}

/** @param {Fields} fields */
export function title(fields) {
  const batch = (fields.batch ?? 1) > 1 ? ` ×${fields.batch}` : "";
  const epilogue = fields.epilogue && fields.epilogue !== "none" ? ` ${fields.epilogue}` : "";
  return `${fields.dtype} ${fields.layout} ${fields.m}×${fields.n}×${fields.k}${batch}${epilogue}`;
}

/** @param {string} key */
export function titleOfKey(key) {
  const fields = fieldsOfKey(key);
  return fields ? title(fields) : key;
}

/** Parameters of the API; defaults are left out. @param {Fields} fields @returns {Record<string, string | number>} */
export function parameters(fields) {
  const { m, n, k, dtype, layout, batch, epilogue, kind } = fields;
  return {
    m, n, k, dtype, layout,
    ...((batch ?? 1) > 1 && { batch: Number(batch) }), ...(epilogue && epilogue !== "none" && { epilogue }),
    ...(kind && kind !== "gemm" && { kind }),
  };
}

/**
 * What somebody typed, such as `7x4096x4096 fp8 nn`; a sentence where it can't be read.
 * @param {string} text
 * @returns {Fields | string}
 */
export function parse(text) {
  const extents = /\b(\d[\d_]*)\s*[x×*,\s]\s*(\d[\d_]*)\s*[x×*,\s]\s*(\d[\d_]*)/i.exec(text);
  if (!extents) return "Write M, N and K, as in 4096x4096x4096, then a dtype and a layout where they are not bf16 nt.";
  const [m, n, k] = extents.slice(1).map((part) => Number(part.replaceAll("_", "")));
  /** @type {Fields} */
  const fields = { m, n, k, dtype: "bf16", layout: "nt", batch: 1, epilogue: "none" };
  const rest = text.replace(extents[0], " ").toLowerCase();
  for (const word of rest.split(/[\s:;]+/).filter(Boolean)) {
    const dtype = WORDS.find((known) => known === word || (known.startsWith(word) && word.length > 2));
    const batch = /^(?:b|batch=?|×|x)([1-9]\d*)$/.exec(word);
    if (LAYOUTS.includes(word)) fields.layout = word;
    else if (dtype) fields.dtype = dtype;
    else if (OPERANDS[word]) fields.dtype = OPERANDS[word];
    else if (batch) fields.batch = Number(batch[1]);
    else if (/^(scaled|scaled_rowwise|alpha|beta|bias|relu|gelu|silu)(\+(beta|bias|relu|gelu|silu))*$/.test(word)) fields.epilogue = word;
    else if (/^\w+(,\w+){3}$/.test(word)) fields.dtype = word;
    else return `“${word}” is no dtype, layout, batch or epilogue: try ${WORDS.slice(0, 4).join(", ")}, nn, b8 or bias+gelu.`;
  }
  return fields;
}

/** The key of a plain problem. @param {Fields} fields */
export function keyOf(fields) {
  const operands = Object.entries(OPERANDS).find(([, word]) => word === fields.dtype)?.[0] ?? fields.dtype;
  return `gemm:${operands}:${fields.layout}:${fields.m}x${fields.n}x${fields.k}:b${fields.batch ?? 1}:${fields.epilogue ?? "none"}`;
}

/** What one would type for it. @param {Fields} fields */
export const spelled = (fields) => [`${fields.m}x${fields.n}x${fields.k}`, fields.dtype, fields.layout,
  (fields.batch ?? 1) > 1 ? `b${fields.batch}` : "", fields.epilogue === "none" ? "" : fields.epilogue ?? ""].filter(Boolean).join(" ");
