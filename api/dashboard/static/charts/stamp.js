// Points as pixels: one word of memory a pixel, which draws 100,000 points in milliseconds.

import { rgb } from "../lib/theme.js";

/** @type {{layer: OffscreenCanvas, image: ImageData, pixels: Uint32Array} | null} kept from drawing to drawing */
let kept = null;

/** @param {OffscreenCanvasRenderingContext2D} ink @param {OffscreenCanvas} layer */
function fresh(ink, layer) {
  const image = ink.createImageData(layer.width, layer.height);
  return { layer, image, pixels: new Uint32Array(image.data.buffer) };
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {{x: Float32Array, y: Float32Array, order: Uint32Array, group?: ArrayLike<number>, groups: {token: string}[], faint?: ArrayLike<number>}} points
 * @param {number} width @param {number} height of the plot
 */
export function stamp(pen, points, width, height) {
  const { x, y, order, group, groups, faint } = points;
  const ratio = pen.getTransform().a;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  const layer = kept?.layer.width === wide && kept.layer.height === high ? kept.layer : new OffscreenCanvas(wide, high);
  const ink = /** @type {OffscreenCanvasRenderingContext2D} */ (layer.getContext("2d"));
  if (kept?.layer === layer) kept.pixels.fill(0);
  else kept = fresh(ink, layer);
  const { image, pixels } = /** @type {NonNullable<typeof kept>} */ (kept);
  const inks = groups.map(({ token }) => {
    const [red, green, blue] = rgb(token);
    return (blue << 16) | (green << 8) | red;
  });
  const size = Math.max(2, Math.round(2 * ratio));
  // Faint points first, so that they hide none of the others.
  for (const pass of faint ? [1, 0] : [0]) {
    const strength = pass ? 0x28000000 : 0xd0000000;
    for (let turn = 0; turn < order.length; turn++) {
      const place = order[turn];
      if (faint && faint[place] !== pass) continue;
      const paint = (inks[group ? group[place] : 0] | strength) >>> 0;
      let start = ((y[place] * ratio - 0.5) | 0) * wide + ((x[place] * ratio - 0.5) | 0);
      for (let row = 0; row < size; row++, start += wide) for (let column = 0; column < size; column++) pixels[start + column] = paint;
    }
  }
  ink.putImageData(image, 0, 0);
  pen.save();
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.drawImage(layer, 0, 0);
  pen.restore();
}
