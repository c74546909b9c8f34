import type { Event } from "@copilot-grpc/client";
import { millis } from "./format.js";
import { firstLine } from "./text.js";

/** A part of a turn that takes time. */
export interface Span {
  readonly key: string;
  readonly kind: "model" | "tool" | "wait" | "hook" | "agent" | "other";
  readonly name: string;
  /** Milliseconds since 1970. The end of a span that has not ended is undefined. */
  readonly start: number;
  readonly end: number | undefined;
  readonly failed: boolean;
  /** Index of the event with which the span begins. */
  readonly index: number;
  /** 0 for the session's own agent, 1 for a sub-agent. */
  readonly depth: number;
}

/** A prompt and the agent's work on it. */
export interface TurnSpans {
  readonly key: string;
  readonly title: string;
  readonly start: number;
  readonly end: number;
  /** Index of its first event. */
  readonly first: number;
  readonly spans: readonly Span[];
}

type Data = NonNullable<Event["event"]>["data"];

/** What an event says about a span: its begin, its end, or both. */
interface Mark {
  readonly at: "start" | "end" | "whole";
  readonly id: string;
  readonly kind: Span["kind"];
  readonly name: string;
  readonly failed?: boolean;
  readonly durationMs?: number;
}

function markOf(data: Data, id: string): Mark | undefined {
  switch (data.case) {
    case "assistantUsage":
      return { at: "whole", id, kind: "model", name: data.value.model, durationMs: Number(data.value.duration ?? 0n) };
    case "toolExecutionStart":
      return { at: "start", id: data.value.toolCallId, kind: "tool", name: data.value.toolName };
    case "toolExecutionComplete":
      return { at: "end", id: data.value.toolCallId, kind: "tool", name: "", failed: !data.value.success };
    case "subagentStarted":
      return { at: "start", id: data.value.toolCallId, kind: "agent", name: data.value.agentDisplayName || data.value.agentName };
    case "subagentCompleted":
      return { at: "end", id: data.value.toolCallId, kind: "agent", name: "" };
    case "subagentFailed":
      return { at: "end", id: data.value.toolCallId, kind: "agent", name: "", failed: true };
    case "permissionRequested":
      return { at: "start", id: data.value.requestId, kind: "wait", name: "Permission" };
    case "userInputRequested":
      return { at: "start", id: data.value.requestId, kind: "wait", name: "Question" };
    case "elicitationRequested":
      return { at: "start", id: data.value.requestId, kind: "wait", name: "Form" };
    case "exitPlanModeRequested":
      return { at: "start", id: data.value.requestId, kind: "wait", name: "Plan approval" };
    case "permissionCompleted":
    case "userInputCompleted":
    case "elicitationCompleted":
    case "exitPlanModeCompleted":
      return { at: "end", id: data.value.requestId, kind: "wait", name: "" };
    case "hookStart":
      return { at: "start", id: data.value.hookInvocationId, kind: "hook", name: data.value.hookType };
    case "hookEnd":
      return { at: "end", id: data.value.hookInvocationId, kind: "hook", name: "", failed: !data.value.success };
    case "sessionCompactionStart":
      return { at: "start", id: "compaction", kind: "other", name: "Compaction" };
    case "sessionCompactionComplete":
      return { at: "end", id: "compaction", kind: "other", name: "" };
    default:
      return undefined;
  }
}

/** The turns of a session and what took their time. Grows with the session's events, each of which is looked at once. */
export class Turns {
  readonly #turns: { start: number; end: number; first: number; title: string; spans: Span[] }[] = [];
  /** The spans that have not ended. */
  readonly #open = new Map<string, { turn: number; at: number }>();
  #events = 0;

  get count(): number {
    return this.#turns.length;
  }

  /** The turn with an index, its spans in the order of their begin. */
  at(index: number): TurnSpans | undefined {
    const turn = this.#turns[index];
    if (!turn) return undefined;
    const spans = turn.spans.toSorted((a, b) => a.start - b.start || a.index - b.index);
    return { ...turn, key: String(turn.first), spans };
  }

  /** The index of the turn to which an event belongs; -1 if it is before the first one. */
  indexOf(event: number): number {
    return this.#turns.findLastIndex(({ first }) => first <= event);
  }

  /** Takes the session's next events. */
  add(events: readonly Event[]): void {
    for (const event of events) this.#add(event, this.#events++);
  }

  #add({ event }: Event, index: number): void {
    const time = millis(event?.timestamp);
    if (!event || time === 0) return;
    if (event.data.case === "userMessage" && !event.agentId) {
      const title = firstLine(event.data.value.content, 80) || "Prompt";
      this.#turns.push({ start: time, end: time, first: index, title, spans: [] });
    }
    const turn = this.#turns.at(-1);
    if (!turn) return;
    turn.end = Math.max(turn.end, time);
    const mark = markOf(event.data, event.id);
    if (!mark) return;
    const id = `${mark.kind} ${mark.id}`;
    if (mark.at === "end") {
      const begun = this.#open.get(id);
      const spans = begun && this.#turns[begun.turn]?.spans;
      const span = begun && spans?.[begun.at];
      if (span) spans![begun.at] = { ...span, end: time, failed: mark.failed ?? false };
      this.#open.delete(id);
      return;
    }
    const whole = mark.at === "whole";
    const start = whole ? time - (mark.durationMs ?? 0) : time;
    const { kind, name } = mark;
    if (!whole) this.#open.set(id, { turn: this.#turns.length - 1, at: turn.spans.length });
    const depth = event.agentId && kind !== "agent" ? 1 : 0;
    turn.spans.push({ key: id, kind, name, start, end: whole ? time : undefined, failed: false, index, depth });
  }
}

/** Where the time of a turn went, in milliseconds by kind. Time of spans that overlap counts for each. */
export function timeByKind(turn: TurnSpans): Map<Span["kind"], number> {
  const sums = new Map<Span["kind"], number>();
  for (const { kind, start, end = turn.end } of turn.spans) sums.set(kind, (sums.get(kind) ?? 0) + end - start);
  return sums;
}
