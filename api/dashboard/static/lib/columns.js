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

/** A device's bests after some have changed, without configs. @param {any} table @param {any} found changed rows, or all */
export function merged(table, found) {
  if (!found.changed) return found;
  const keys = [...table.columns.key];
  const cuts = found.changed.map((/** @type {string} */ key) => {
    const at = keys.filter((other) => other < key).length;
    const rows = found.columns.key.flatMap((/** @type {string} */ other, /** @type {number} */ row) => (other === key ? row : []));
    const gone = Number(keys[at] === key);
    keys.splice(at, gone, ...rows.map(() => key));
    return [at, gone, rows];
  });
  return { ...found, rows: keys.length, columns: cutInto(table.columns, found.columns, cuts), policies: cutInto(table.policies, found.policies, cuts) };
}

/** @param {any} old columns, or groups of them @param {any} fresh @param {[number, number, number[]][]} cuts @returns {any} */
function cutInto(old, fresh, cuts) {
  if (Array.isArray(fresh)) {
    const column = [...old];
    for (const [at, gone, rows] of cuts) column.splice(at, gone, ...rows.map((row) => fresh[row]));
    return column;
  }
  if (Array.isArray(fresh.at)) {
    const values = [...new Set([...old.values, ...fresh.values])];
    return { values, at: cutInto(old.at, fresh.at.map((/** @type {number} */ place) => values.indexOf(fresh.values[place])), cuts) };
  }
  return Object.fromEntries(Object.entries(fresh).map(([name, column]) => [name, cutInto(old[name], column, cuts)]));
}

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
