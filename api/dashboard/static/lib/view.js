import "./quiet.js";

/** Opens a page of ours. @param {string} address */
export const go = (address) => document.dispatchEvent(new CustomEvent("gemmtune:go", { detail: address }));
export { html, nothing, render, svg } from "../vendor/lit-html.js";
