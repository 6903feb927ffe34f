// Axes on a canvas: grid lines, numbers, and what they count.

import { colour } from "../lib/theme.js";
import { short, ticks } from "./scale.js";

export const FONT = '12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';

/**
 * @typedef {import("./scale.js").Scale} Scale
 * @typedef {{left: number, top: number, right: number, bottom: number}} Box edges of the plot in pixels
 */

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Box} box
 * @param {Scale} x @param {Scale} y
 * @param {{x?: string, y?: string, formatX?: (value: number) => string, formatY?: (value: number) => string, bare?: boolean}} names bare: no numbers along x
 */
export function axes(pen, box, x, y, names) {
  pen.font = FONT;
  pen.lineWidth = 1;
  pen.strokeStyle = colour("line");
  pen.fillStyle = colour("soft");
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  for (const value of ticks(y, Math.max(2, (box.bottom - box.top) / 42))) {
    const at = Math.round(y(value)) + 0.5;
    line(pen, box.left, at, box.right, at);
    pen.fillText((names.formatY ?? short)(value), box.left - 6, at);
  }
  pen.textBaseline = "top";
  pen.textAlign = "center";
  for (const value of ticks(x, Math.max(2, (box.right - box.left) / 70))) {
    const at = Math.round(x(value)) + 0.5;
    if (names.bare) continue;
    line(pen, at, box.bottom, at, box.bottom + 4);
    pen.fillText((names.formatX ?? short)(value), at, box.bottom + 6);
  }
  line(pen, box.left, box.bottom + 0.5, box.right, box.bottom + 0.5);
  if (names.x) {
    pen.textAlign = "right";
    pen.fillText(names.x, box.right, box.bottom + 22);
  }
  if (names.y) {
    pen.textAlign = "left";
    pen.fillText(names.y, 0, 0);
  }
}

/** @param {CanvasRenderingContext2D} pen @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1 */
export function line(pen, x0, y0, x1, y1) {
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
}

/**
 * A mark whose shape says what its colour says.
 * @param {CanvasRenderingContext2D} pen
 * @param {"faster" | "slower" | "tied" | "none" | "dot" | "square" | "ring"} shape
 * @param {number} x @param {number} y @param {number} size half of its width
 */
export function mark(pen, shape, x, y, size) {
  pen.beginPath();
  if (shape === "dot" || shape === "none") pen.arc(x, y, size * 0.9, 0, 7);
  else if (shape === "square") pen.rect(x - size * 0.85, y - size * 0.85, size * 1.7, size * 1.7);
  else if (shape === "ring") {
    pen.arc(x, y, size * 0.85, 0, 7);
    pen.stroke();
    return;
  } else if (shape === "tied") {
    pen.moveTo(x, y - size * 1.15);
    pen.lineTo(x + size * 1.15, y);
    pen.lineTo(x, y + size * 1.15);
    pen.lineTo(x - size * 1.15, y);
  } else {
    const up = shape === "faster" ? -1 : 1;
    pen.moveTo(x, y + up * size * 1.2);
    pen.lineTo(x + size * 1.1, y - up * size * 0.8);
    pen.lineTo(x - size * 1.1, y - up * size * 0.8);
  }
  pen.closePath();
  pen.fill();
}

/**
 * Lines through the data, or the name of each at its end: names are drawn after the points.
 * @param {CanvasRenderingContext2D} pen @param {Box} box @param {Scale} x @param {Scale} y
 * @param {{x: number[], y: number[], token: string, name: string}[]} lines
 * @param {boolean} [named]
 */
export function polylines(pen, box, x, y, lines, named) {
  pen.save();
  pen.beginPath();
  pen.rect(box.left, box.top - 20, box.right - box.left, box.bottom - box.top + 20);
  pen.clip();
  for (const { x: across, y: up, token, name } of lines) {
    pen.lineWidth = named ? 4 : 1.5;
    pen.strokeStyle = colour(named ? "card" : token);
    if (!named) {
      pen.beginPath();
      across.forEach((value, place) => pen.lineTo(x(value), y(up[place])));
      pen.stroke();
      continue;
    }
    pen.fillStyle = colour(token);
    pen.textAlign = "right";
    pen.textBaseline = "bottom";
    const at = Math.max(box.top - 4, y(up[up.length - 1]) - 3);
    pen.strokeText(name, box.right - 4, at);
    pen.fillText(name, box.right - 4, at);
  }
  pen.restore();
}
