import { formatPosition } from "../position.js";
import type { Event } from "../proto.js";
import type { MessageItem, NoticeItem, ReasoningItem, ToolItem, View, ViewItem } from "./state.js";

type Data = NonNullable<Event["event"]>["data"];
type Value<C extends Data["case"]> = Extract<Data, { case: C }>["value"];
type Named = Exclude<Data["case"], undefined>;

/** What an event changes, by its case. Other events change only the position. */
const reducers: { [C in Named]?: (view: View, value: Value<C>, event: Event) => View } = {
  userMessage: (view, value, event) =>
    append(running(view), {
      kind: "user",
      key: value.messageId || eventKey(event),
      text: value.content,
      attachments: value.attachments.length,
      source: value.source ?? "",
      lost: false,
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
      return { ...item, name: toolName, argumentsJson: argumentsJson ?? item.argumentsJson, state: "running" };
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
  sessionUsageInfo: (view, { currentTokens, tokenLimit }) => ({
    ...view,
    usage: { ...view.usage, contextTokens: Number(currentTokens), contextLimit: Number(tokenLimit) },
  }),
  sessionTitleChanged: (view, { title }) => ({ ...view, title }),
  sessionModelChange: (view, { newModel }) => ({ ...view, model: newModel }),
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
  const streams = view.items.some((item) => "streaming" in item && item.streaming);
  return {
    ...view,
    turn: { ...view.turn, running: false, intent: "" },
    items: streams
      ? view.items.map((item) => ("streaming" in item && item.streaming ? { ...item, streaming: false } : item))
      : view.items,
  };
}

function assistantMessage(view: View, value: Value<"assistantMessage">, event: Event): View {
  const { messageId, content, toolRequests } = value;
  const known = view.items.some((item) => item.kind === "message" && item.key === messageId);
  // A message that only calls tools has no text to show.
  const shown =
    content || known ? message(view, event, messageId, (item) => ({ ...item, text: content, streaming: false })) : view;
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
  const { position } = event;
  return upsert(view, { kind: "message", key, agentId: agentOf(event), text: "", streaming: true, position }, change);
}

function reasoning(view: View, event: Event, key: string, change: (item: ReasoningItem) => ReasoningItem): View {
  const { position } = event;
  return upsert(view, { kind: "reasoning", key, agentId: agentOf(event), text: "", streaming: true, position }, change);
}

function tool(view: View, event: Event, toolCallId: string, change: (item: ToolItem) => ToolItem): View {
  const texts = { name: "", argumentsJson: "", output: "", progress: "", error: "" };
  const { position } = event;
  const created: ToolItem = {
    ...texts,
    ...{ kind: "tool", key: toolCallId, toolCallId, agentId: agentOf(event), state: "streaming", position },
  };
  return upsert(view, created, change);
}

function isDone(item: ToolItem): boolean {
  return item.state === "completed" || item.state === "failed";
}

function notice(view: View, event: Event, level: NoticeItem["level"], text: string): View {
  return append(view, { kind: "notice", key: eventKey(event), level, text, position: event.position });
}

/** Changes the item with the key and kind of `created`, or appends `created` with the change. */
function upsert<T extends ViewItem>(view: View, created: T, change: (item: T) => T): View {
  // Items that change are near the end.
  const at = view.items.findLastIndex((item) => item.kind === created.kind && item.key === created.key);
  const found = view.items[at];
  if (!found) return append(view, change(created));
  const changed = change(found as T);
  return changed === found ? view : { ...view, items: view.items.with(at, changed) };
}

export function append(view: View, item: ViewItem): View {
  return { ...view, items: [...view.items, item] };
}

function agentOf(event: Event): string {
  return event.event?.agentId ?? "";
}

function eventKey(event: Event): string {
  return event.event?.id || formatPosition(event.position);
}
