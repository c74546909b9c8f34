import type { View, ViewItem } from "@copilot-grpc/client/view";

/** An entry of the conversation as the page shows it. */
export type Entry = {
  readonly key: string;
  /** 0 for the session's own agent, 1 for a sub-agent. */
  readonly depth: number;
} & (
  | { readonly kind: "item"; readonly item: ViewItem }
  /** The agent works, and nothing streams. */
  | { readonly kind: "working"; readonly intent: string }
  | { readonly kind: "outcome"; readonly status: string; readonly text: string }
);

const made = new WeakMap<ViewItem, Entry>();

/** The entries of a view. An item that has not changed has the same entry. */
export function entriesOf(view: View): Entry[] {
  const entries = view.items.map(entryOf);
  const last = view.items.at(-1);
  const streams = last !== undefined && "streaming" in last && last.streaming;
  if (view.turn.running && !streams && view.pending.length === 0) {
    entries.push({ key: "working", depth: 0, kind: "working", intent: view.turn.intent });
  }
  const { outcome } = view.turn;
  if (outcome && outcome.status !== "completed") {
    entries.push({
      key: "outcome",
      depth: 0,
      kind: "outcome",
      status: outcome.status,
      text: outcome.error?.message ?? "",
    });
  }
  return entries;
}

function entryOf(item: ViewItem): Entry {
  let entry = made.get(item);
  if (!entry) {
    const depth = "agentId" in item && item.agentId ? 1 : 0;
    entry = { key: `${item.kind} ${item.key}`, depth, kind: "item", item };
    made.set(item, entry);
  }
  return entry;
}
