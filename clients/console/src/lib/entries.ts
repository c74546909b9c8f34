import type { AgentView, ToolItem, View, ViewItem } from "@copilot-grpc/client/view";

/** An entry of the conversation as the page shows it. */
export type Entry = {
  readonly key: string;
  /** 0 for the session's own agent, 1 for its sub-agents, 2 for theirs. */
  readonly depth: number;
} & (
  | { readonly kind: "item"; readonly item: Exclude<ViewItem, ToolItem> }
  | {
      readonly kind: "tool";
      readonly item: ToolItem;
      /** The sub-agent that the call started. */
      readonly agent: AgentView | undefined;
      /** Number of entries of the sub-agent, and whether they follow. */
      readonly steps: number;
      readonly expanded: boolean;
    }
  /** The agent works, and nothing streams. */
  | { readonly kind: "working"; readonly intent: string }
  | { readonly kind: "outcome"; readonly status: string; readonly text: string }
);

const made = new WeakMap<ViewItem, Entry>();

/** Sub-agents whose steps the user showed or hid, by the call that started them. */
export type Expanded = ReadonlyMap<string, boolean>;

/** The entries of a view. An item that has not changed has the same entry. */
export function entriesOf(view: View, expanded: Expanded = new Map()): Entry[] {
  if (view.agents.length === 0) return plainEntries(view);
  const agents = new Map(view.agents.map((agent) => [agent.toolCallId, agent]));
  const steps = stepsOf(view);
  const entries: Entry[] = [];
  const add = (items: readonly ViewItem[], depth: number): void => {
    for (const item of items) {
      const agent = item.kind === "tool" ? agents.get(item.toolCallId) : undefined;
      const inner = agent ? (steps.get(agent.agentId) ?? []) : [];
      const open = agent !== undefined && (expanded.get(agent.toolCallId) ?? agent.state === "running");
      entries.push(entryOf(item, depth, agent, inner.length, open));
      if (open) add(inner, Math.min(depth + 1, 3));
    }
  };
  add(steps.get("") ?? [], 0);
  addTurn(view, entries);
  return entries;
}

/** The last view without sub-agents: a long conversation changes at its end, and the rest is taken from here. */
let last: { readonly items: readonly ViewItem[]; readonly entries: readonly Entry[] } = { items: [], entries: [] };

function plainEntries(view: View): Entry[] {
  const { items, entries: before } = last;
  const entries = view.items.map((item, at) =>
    items[at] === item ? before[at]! : entryOf(item, "agentId" in item && item.agentId ? 1 : 0, undefined, 0, false),
  );
  last = { items: view.items, entries };
  const shown = entries.filter((entry) => !isTask(entry));
  addTurn(view, shown);
  return shown;
}

/** The task of a sub-agent is an argument of the call that started it. */
function isTask(entry: Entry): boolean {
  return entry.kind === "item" && entry.item.kind === "user" && entry.item.agentId !== "";
}

/** The items of each agent, by its id; "" is the session's own. Items of an unknown agent are the session's own. */
function stepsOf(view: View): Map<string, ViewItem[]> {
  const known = new Set(view.agents.map(({ agentId }) => agentId));
  const steps = new Map<string, ViewItem[]>([["", []]]);
  for (const agentId of known) steps.set(agentId, []);
  for (const item of view.items) {
    // The task of a sub-agent is an argument of the call that started it.
    if (item.kind === "user" && item.agentId) continue;
    const agentId = "agentId" in item && known.has(item.agentId) ? item.agentId : "";
    steps.get(agentId)?.push(item);
  }
  return steps;
}

function addTurn(view: View, entries: Entry[]): void {
  const end = view.items.at(-1);
  const streams = end !== undefined && "streaming" in end && end.streaming;
  if (view.turn.running && !streams && view.pending.length === 0) {
    entries.push({ key: "working", depth: 0, kind: "working", intent: view.turn.intent });
  }
  const { outcome } = view.turn;
  if (outcome && outcome.status !== "completed") {
    const text = outcome.error?.message ?? "";
    entries.push({ key: "outcome", depth: 0, kind: "outcome", status: outcome.status, text });
  }
}

function entryOf(item: ViewItem, depth: number, agent: AgentView | undefined, steps: number, expanded: boolean): Entry {
  const before = made.get(item);
  if (before && before.depth === depth && (before.kind !== "tool" || same(before, agent, steps, expanded))) return before;
  const key = `${item.kind} ${item.key}`;
  const entry: Entry =
    item.kind === "tool" ? { key, depth, kind: "tool", item, agent, steps, expanded } : { key, depth, kind: "item", item };
  made.set(item, entry);
  return entry;
}

function same(
  before: Extract<Entry, { kind: "tool" }>,
  agent: AgentView | undefined,
  steps: number,
  expanded: boolean,
): boolean {
  return before.agent === agent && before.steps === steps && before.expanded === expanded;
}
