import type { View, ViewItem } from "./state.js";

/**
 * Where the item of a kind and key is. The versions of a list share one index: items keep their place, and are only
 * appended. An entry of another branch of versions can be wrong, so that each use checks it.
 */
const indexes = new WeakMap<readonly ViewItem[], Map<string, number>>();

/** The list that a batch has copied already: until the end of the batch, nobody else sees it. */
let draft: ViewItem[] | undefined;

/** Runs a change of many steps, in which the list of items is copied once. */
export function inBatch(change: () => View): View {
  try {
    return change();
  } finally {
    draft = undefined;
  }
}

function nameOf(kind: ViewItem["kind"], key: string): string {
  return `${kind} ${key}`;
}

function indexOf(items: readonly ViewItem[]): Map<string, number> {
  let index = indexes.get(items);
  if (!index) {
    index = new Map(items.map((item, at) => [nameOf(item.kind, item.key), at]));
    indexes.set(items, index);
  }
  return index;
}

/** The place of an item; -1 if there is none. */
export function find(items: readonly ViewItem[], kind: ViewItem["kind"], key: string): number {
  const is = (item: ViewItem | undefined) => item?.kind === kind && item.key === key;
  const at = indexOf(items).get(nameOf(kind, key));
  if (at === undefined) return -1;
  return is(items[at]) ? at : items.findLastIndex(is);
}

/** A list with the same items that the caller may change. */
function own(items: readonly ViewItem[]): ViewItem[] {
  if (items === draft) return draft;
  const index = indexOf(items);
  draft = [...items];
  indexes.set(draft, index);
  return draft;
}

/** The view with another item at its end. Call it in a batch. */
export function append(view: View, item: ViewItem): View {
  const items = own(view.items);
  indexOf(items).set(nameOf(item.kind, item.key), items.length);
  items.push(item);
  return { ...view, items };
}

/** The view with another item in the place of one with the same kind and key. Call it in a batch. */
export function replace(view: View, at: number, item: ViewItem): View {
  const items = own(view.items);
  items[at] = item;
  return { ...view, items };
}

/** Changes the item with the key and kind of `created`, or appends `created` with the change. */
export function upsert<T extends ViewItem>(view: View, created: T, change: (item: T) => T): View {
  const at = find(view.items, created.kind, created.key);
  const found = view.items[at];
  if (!found) return append(view, change(created));
  const changed = change(found as T);
  return changed === found ? view : replace(view, at, changed);
}

/** The view with changed items. */
export function mapItems(view: View, change: (item: ViewItem) => ViewItem): View {
  let next = view;
  for (const [at, item] of view.items.entries()) {
    const changed = change(item);
    if (changed !== item) next = replace(next, at, changed);
  }
  return next;
}
