// The point nearest to the pointer, among up to millions: points are kept by cell of the plot.

const CELL = 12;
const ROW = 4096;

export class Near {
  /** @type {Map<number, number[]>} */
  #cells = new Map();

  /** @param {Float32Array} x @param {Float32Array} y @param {Uint32Array} order points that have a place */
  constructor(x, y, order) {
    this.x = x;
    this.y = y;
    this.order = order;
    order.forEach((point, place) => {
      const cell = Math.floor(x[point] / CELL) * ROW + Math.floor(y[point] / CELL);
      const held = this.#cells.get(cell);
      if (held) held.push(place);
      else this.#cells.set(cell, [place]);
    });
  }

  /** @param {number} x @param {number} y @returns {number} a place in the order; -1 where none is near */
  at(x, y) {
    let [best, least] = [-1, CELL * CELL];
    for (const over of [-1, 0, 1]) for (const down of [-1, 0, 1]) {
      for (const place of this.#cells.get((Math.floor(x / CELL) + over) * ROW + Math.floor(y / CELL) + down) ?? []) {
        const point = this.order[place];
        const away = (this.x[point] - x) ** 2 + (this.y[point] - y) ** 2;
        if (away < least) [best, least] = [place, away];
      }
    }
    return best;
  }
}
