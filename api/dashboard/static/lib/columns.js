// Columns of the column routes: plain arrays, or dictionaries `{values, at}`.

/** @typedef {any[] | {values: any[], at: number[]}} Column */

/** @param {Column} column @returns {any[]} one value a row */
export function plain(column) {
  if (Array.isArray(column)) return column;
  const { values, at } = column;
  return at.map((place) => values[place]);
}

/** @param {Column} column @param {number} row */
export const cell = (column, row) => (Array.isArray(column) ? column[row] : column.values[column.at[row]]);

/** The values that occur. @param {Column} column @returns {any[]} */
export const distinct = (column) => (Array.isArray(column) ? [...new Set(column)] : column.values);

/**
 * The config of one row.
 * @param {any} configs of a column answer
 * @param {number} place
 * @returns {{family: string, knobs: Record<string, string | number>}}
 */
export function config(configs, place) {
  /** @type {Record<string, string | number>} */
  const knobs = {};
  for (const [name, column] of Object.entries(configs.knobs)) {
    const value = cell(/** @type {Column} */ (column), place);
    if (value !== null) knobs[name] = value;
  }
  return { family: cell(configs.family, place), knobs };
}
