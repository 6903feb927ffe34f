// An answer as code to copy: curl, Python, command line, torch, C++.

import { address, token } from "../lib/api.js";
import { written } from "../lib/configs.js";
import { parameters } from "../lib/problem.js";
import { html } from "../lib/view.js";

const KEY = "gemmtune.snippet";
const TORCH = /** @type {Record<string, string>} */ ({ bf16: "bfloat16", fp16: "float16", tf32: "float32", fp8_e4m3: "float8_e4m3fn", fp8_e5m2: "float8_e5m2", f32: "float32", s32: "int32" });
/** What an epilogue reads. @type {Record<string, string[]>} */
const READS = { alpha: ["alpha"], beta: ["source", "beta"], bias: ["bias"], scaled: ["scale_a", "scale_b"], scaled_rowwise: ["scale_a", "scale_b"] };

/** @type {Record<string, (answer: any) => string>} */
const WRITERS = { curl, Python: python, "command line": commandLine, torch, "C++": cpp };

/** @param {any} answer with the policy that was `asked` */
export function snippets(answer) {
  const kept = sessionStorage.getItem(KEY) ?? "";
  const name = WRITERS[kept] ? kept : "curl";
  /** @type {HTMLElement | undefined} */
  let box;
  const show = (/** @type {Event} */ event, /** @type {string} */ chosen) => {
    sessionStorage.setItem(KEY, chosen);
    const button = /** @type {HTMLElement} */ (event.currentTarget);
    box = /** @type {HTMLElement} */ (button.closest(".snippets"));
    for (const tab of box.querySelectorAll("button.tab")) tab.setAttribute("aria-pressed", String(tab === button));
    /** @type {HTMLElement} */ (box.querySelector("code")).textContent = WRITERS[chosen](answer);
  };
  return html`<div class="snippets">
    <div class="row centre" role="group" aria-label="Copy as">${Object.keys(WRITERS).map((chosen) => html`
      <button type="button" class="tab" aria-pressed=${chosen === name} @click=${(/** @type {Event} */ e) => show(e, chosen)}>${chosen}</button>`)}
      <button type="button" class="quiet" @click=${copy}>Copy</button></div>
    <pre tabindex="0" aria-label="Code"><code .textContent=${WRITERS[name](answer)}></code></pre></div>`;
}

/** @param {Event} event */
async function copy(event) {
  const button = /** @type {HTMLElement} */ (event.currentTarget);
  const code = /** @type {HTMLElement} */ (button.closest(".snippets")?.querySelector("code"));
  await navigator.clipboard.writeText(code.textContent ?? "").then(
    () => { button.textContent = "Copied"; }, () => { getSelection()?.selectAllChildren(code); });
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

/** @param {any} answer */
const options = (answer) => Object.entries(parameters(answer.problem)).slice(3).filter(([name, value]) =>
  !((name === "dtype" && value === "bf16") || (name === "layout" && value === "nt")));

/** @param {any} answer */
const theirs = (answer) => answer.config?.family === "cublaslt";

const service = () => `"${location.origin}"${token.get() && ', token=open("token").read().strip()'}`;

/** @param {any} answer */
function curl({ problem, device, asked: policy }) {
  return `curl ${token.get() ? '-H "Authorization: Bearer $(cat token)" \\\n  ' : ""}'${location.origin}${address("/v1/best", { ...parameters(problem), device, policy })}'`;
}

/** @param {any} answer */
function python(answer) {
  const { m, n, k } = answer.problem;
  const named = options(answer).map(([name, value]) => `, ${name}=${JSON.stringify(value)}`).join("");
  return `from gemmtune import Client\n\nwith Client(${service()}) as client:\n` +
    `    best = client.best(${m}, ${n}, ${k}${named}, device=${JSON.stringify(answer.device)}${answer.asked && `, policy="${answer.asked}"`})\n` +
    "print(best.source, best.family, best.time_us, dict(best.knobs))";
}

/** @param {any} answer */
function commandLine(answer) {
  const { m, n, k } = answer.problem;
  const flags = options(answer).map(([name, value]) => ` --${name} ${value}`).join("");
  const asked = `${m}x${n}x${k}${flags} --device '${answer.device}'`;
  return `gemmtune best ${asked}${answer.asked && ` --policy ${answer.asked}`}${answer.config && !theirs(answer) ? `\ngemmtune explain ${asked} --config ${written(answer.config)}` : ""}`;
}

/** @param {any} answer */
function torch({ problem }) {
  const { m, n, k, dtype_a: first, dtype_b: second, dtype_c: out, dtype_acc: sums, layout, batch, epilogue } = problem;
  if (!layout || sums === "fp16") return "# gemmtune.torch has no call for it";
  const typed = (/** @type {string} */ dtype) => `dtype=torch.${TORCH[dtype] ?? dtype}`;
  const lead = batch > 1 ? `${batch}, ` : "";
  const other = second === first ? "" : `, ${typed(second)}`;
  const a = layout[0] === "n" ? `a = empty(${lead}${m}, ${k})` : `a = empty(${lead}${k}, ${m}).mT`;
  const b = layout[1] === "t" ? `b = empty(${lead}${n}, ${k}${other}).mT` : `b = empty(${lead}${k}, ${n}${other})`;
  const given = [...read(problem).map((name) => `, ${name}=${name}`), epilogue.endsWith("lu") && `, activation="${epilogue.split("+").at(-1)}"`,
    sums === "f32_promoted" && ", promoted=True", problem.dtype.includes(",") && `, out_${typed(out)}`];
  return `import torch\nfrom gemmtune.torch import configure, gemm\n\nconfigure(${service()})\n${first === "tf32" ? 'torch.set_float32_matmul_precision("high")\n' : ""}` +
    `empty = lambda *shape, ${typed(first)}: torch.empty(*shape, device="cuda", dtype=dtype)\n${a}\n${b}\nc = gemm(a, b${given.filter(Boolean).join("")})`;
}

/** @param {any} problem */
const read = ({ epilogue }) => String(epilogue).split("+").flatMap((part) => READS[part] ?? []);

/** @param {any} answer */
function cpp(answer) {
  const [header, kind] = theirs(answer) ? ["/cublaslt", "Algorithm"] : ["", "Kernel"];
  return `// gemmtune export --format bundle --out bundle --device '${answer.device}'\n#include "gemmtune${header}.hpp"\n\n` +
    `gemmtune::Bundle bundle;\nif (auto error = bundle.load("bundle")) return fail(error.message);\n` +
    `gemmtune::${kind} kernel;  // one for each stream\n` +
    `if (auto error = kernel.load(bundle, "${answer.problem.key}")) return fail(error.message);\n` +
    `gemmtune::Operands operands{a, b, c};\n${read(answer.problem).map((name) => `operands.${name} = ${name};\n`).join("")}` +
    "if (auto error = kernel.launch(stream, operands)) return fail(error.message);";
}
