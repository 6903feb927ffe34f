import "./quiet.js";

export { html, nothing, render, svg } from "../vendor/lit-html.js";
