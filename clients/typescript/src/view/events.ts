import { formatPosition } from "../position.js";
import type { Event } from "../proto.js";
import { append, find, mapItems, upsert } from "./items.js";
import type { AgentView, AttachmentView, MessageItem, NoticeItem, ReasoningItem, ToolItem, View } from "./state.js";

type Data = NonNullable<Event["event"]>["data"];
type Value<C extends Data["case"]> = Extract<Data, { case: C }>["value"];
type Named = Exclude<Data["case"], undefined>;

/** What an event changes, by its case. Other events change only the position. */
const reducers: { [C in Named]?: (view: View, value: Value<C>, event: Event) => View } = {
  userMessage: (view, value, event) =>
    append(agentOf(event) ? view : running(view), {
      kind: "user",
      key: value.messageId || eventKey(event),
      agentId: agentOf(event),
      text: value.content,
      attachments: value.attachments.map(attachmentOf),
      source: value.source ?? "",
      lost: false,
      at: timeOf(event),
      position: event.position,
    }),
  assistantTurnStart: (view, _value, event) => (agentOf(event) ? view : running(view)),
  assistantIntent: (view, { intent }, event) => (agentOf(event) ? view : { ...view, turn: { ...view.turn, intent } }),
  assistantMessageStart: (view, { messageId }, event) => message(view, event, messageId, (item) => item),
  assistantMessageDelta: (view, { messageId, deltaContent }, event) =>
    message(view, event, messageId, (item) => (item.streaming ? { ...item, text: item.text + deltaContent } : item)),
  assistantMessage: assistantMessage,
  assistantReasoningDelta: (view, { reasoningId, deltaContent }, event) =>
    reasoning(view, event, reasoningId, (item) =>
      item.streaming ? { ...item, text: item.text + deltaContent } : item,
    ),
  assistantReasoning: (view, { reasoningId, content }, event) =>
    reasoning(view, event, reasoningId, (item) => ({ ...item, text: content, streaming: false })),
  assistantToolCallDelta: (view, { toolCallId, toolName, inputDelta }, event) =>
    tool(view, event, toolCallId, (item) => {
      if (item.state !== "streaming") return item;
      return { ...item, name: toolName || item.name, argumentsJson: item.argumentsJson + inputDelta };
    }),
  toolExecutionStart: (view, { toolCallId, toolName, argumentsJson }, event) =>
    tool(view, event, toolCallId, (item) => {
      if (isDone(item)) return item;
      const known = { name: toolName, argumentsJson: argumentsJson ?? item.argumentsJson, startedAt: timeOf(event) };
      return { ...item, ...known, state: "running" };
    }),
  toolExecutionPartialResult: (view, { toolCallId, partialOutput }, event) =>
    tool(view, event, toolCallId, (item) => (isDone(item) ? item : { ...item, output: partialOutput })),
  toolExecutionProgress: (view, { toolCallId, progressMessage }, event) =>
    tool(view, event, toolCallId, (item) => (isDone(item) ? item : { ...item, progress: progressMessage })),
  toolExecutionComplete: (view, { toolCallId, success, result, error }, event) =>
    tool(view, event, toolCallId, (item) => ({
      ...item,
      state: success ? "completed" : "failed",
      output: result?.content ?? item.output,
      detail: result && result.detailedContent !== result.content ? (result.detailedContent ?? "") : "",
      endedAt: timeOf(event),
      error: error?.message ?? "",
      progress: "",
    })),
  assistantUsage: (view, { inputTokens, outputTokens, cost }) => ({
    ...view,
    usage: {
      ...view.usage,
      requests: view.usage.requests + 1,
      inputTokens: view.usage.inputTokens + Number(inputTokens ?? 0n),
      outputTokens: view.usage.outputTokens + Number(outputTokens ?? 0n),
      cost: view.usage.cost + (cost ?? 0),
    },
  }),
  sessionUsageInfo: (view, { currentTokens, tokenLimit }, event) => {
    if (agentOf(event)) return view;
    return {
      ...view,
      usage: { ...view.usage, contextTokens: Number(currentTokens), contextLimit: Number(tokenLimit) },
    };
  },
  subagentStarted: (view, { toolCallId, agentName, agentDisplayName }, event) =>
    agent(view, toolCallId, event, { name: agentDisplayName || agentName, state: "running" }),
  subagentCompleted: (view, { toolCallId, totalToolCalls, totalTokens, durationMs }, event) =>
    agent(view, toolCallId, event, { state: "completed", ...totals(totalToolCalls, totalTokens, durationMs) }),
  subagentFailed: (view, { toolCallId, error, totalToolCalls, totalTokens, durationMs }, event) =>
    agent(view, toolCallId, event, { state: "failed", error, ...totals(totalToolCalls, totalTokens, durationMs) }),
  sessionTitleChanged: (view, { title }) => ({ ...view, title }),
  sessionModelChange: (view, { newModel }, event) => (agentOf(event) ? view : { ...view, model: newModel }),
  sessionInfo: (view, { message: text }, event) => notice(view, event, "info", text),
  sessionWarning: (view, { message: text }, event) => notice(view, event, "warning", text),
  sessionError: (view, { message: text }, event) => notice(view, event, "error", text),
  sessionIdle: (view) => idle(view),
};

/** The view after an event. */
export function reduceEvent(view: View, event: Event): View {
  const data = event.event?.data;
  if (data?.case === undefined) return view;
  const reducer = reducers[data.case] as ((view: View, value: unknown, event: Event) => View) | undefined;
  return reducer ? reducer(view, data.value, event) : view;
}

function running(view: View): View {
  return view.turn.running ? view : { ...view, turn: { running: true, intent: "", outcome: undefined } };
}

/** The view without a running turn: nothing streams any more. */
export function idle(view: View): View {
  const ended = mapItems(view, (item) =>
    "streaming" in item && item.streaming ? { ...item, streaming: false } : item,
  );
  return { ...ended, turn: { ...view.turn, running: false, intent: "" } };
}

function agent(view: View, toolCallId: string, event: Event, change: Partial<AgentView>): View {
  const found = view.agents.find((each) => each.toolCallId === toolCallId);
  const none = { name: "", state: "running", error: "", toolCalls: 0, tokens: 0, durationMs: 0 } as const;
  const changed = { ...none, agentId: agentOf(event), toolCallId, ...found, ...change };
  const agents = found ? view.agents.map((each) => (each === found ? changed : each)) : [...view.agents, changed];
  return { ...view, agents };
}

function totals(toolCalls = 0n, tokens = 0n, durationMs = 0n): Partial<AgentView> {
  return { toolCalls: Number(toolCalls), tokens: Number(tokens), durationMs: Number(durationMs) };
}

function assistantMessage(view: View, value: Value<"assistantMessage">, event: Event): View {
  const { messageId, content, toolRequests } = value;
  const known = find(view.items, "message", messageId) >= 0;
  // A message that only calls tools has no text to show.
  const shown =
    content || known
      ? message(view, event, messageId, (item) => {
          // A long event is shortened; its deltas are whole.
          const text = event.truncated && item.text.length > content.length ? item.text : content;
          return { ...item, text, streaming: false };
        })
      : view;
  return toolRequests.reduce(
    (next, { toolCallId, name, argumentsJson }) =>
      tool(next, event, toolCallId, (item) => {
        if (item.state !== "streaming") return item;
        return { ...item, name, argumentsJson: argumentsJson ?? item.argumentsJson, state: "requested" };
      }),
    shown,
  );
}

function message(view: View, event: Event, key: string, change: (item: MessageItem) => MessageItem): View {
  const created = { key, agentId: agentOf(event), text: "", streaming: true, at: timeOf(event) };
  return upsert(view, { kind: "message", ...created, position: event.position }, change);
}

function reasoning(view: View, event: Event, key: string, change: (item: ReasoningItem) => ReasoningItem): View {
  const created = { key, agentId: agentOf(event), text: "", streaming: true, at: timeOf(event) };
  return upsert(view, { kind: "reasoning", ...created, position: event.position }, change);
}

function tool(view: View, event: Event, toolCallId: string, change: (item: ToolItem) => ToolItem): View {
  const texts = { name: "", argumentsJson: "", output: "", detail: "", progress: "", error: "" };
  const { position } = event;
  const created: ToolItem = {
    ...texts,
    ...{ kind: "tool", key: toolCallId, toolCallId, agentId: agentOf(event), state: "streaming", position },
    ...{ startedAt: 0, endedAt: 0 },
  };
  return upsert(view, created, change);
}

function isDone(item: ToolItem): boolean {
  return item.state === "completed" || item.state === "failed";
}

function notice(view: View, event: Event, level: NoticeItem["level"], text: string): View {
  return append(view, { kind: "notice", key: eventKey(event), level, text, position: event.position });
}

function attachmentOf({ variant }: Value<"userMessage">["attachments"][number]): AttachmentView {
  if (variant.case === undefined || variant.case === "unrecognized") return { kind: "", name: "", mimeType: "" };
  const value = variant.value as Partial<Record<"displayName" | "title" | "path" | "url" | "mimeType", string>>;
  const name = value.displayName || value.title || value.path || value.url || "";
  return { kind: variant.case, name, mimeType: value.mimeType ?? "" };
}

function agentOf(event: Event): string {
  return event.event?.agentId ?? "";
}

function timeOf(event: Event): number {
  const time = event.event?.timestamp;
  return time ? Number(time.seconds) * 1000 + Math.floor(time.nanos / 1e6) : 0;
}

function eventKey(event: Event): string {
  return event.event?.id || formatPosition(event.position);
}
