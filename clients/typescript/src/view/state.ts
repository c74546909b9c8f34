import type { SessionInfo } from "../info.js";
import type { Callback, Position } from "../proto.js";
import type { OutcomeData } from "../turn.js";
import type { CloseReason, GapReason } from "../words.js";

/** An attachment of a prompt. */
export interface AttachmentView {
  /** Such as "file", "directory", "blob" or "selection"; empty for a kind that this library does not know. */
  readonly kind: string;
  /** The name for people; empty if there is none. */
  readonly name: string;
  /** The content's MIME type; empty if unknown. */
  readonly mimeType: string;
}

/** A message of a user. */
export interface UserItem {
  readonly kind: "user";
  /** Stable and unique in the view, for lists of user interfaces. */
  readonly key: string;
  /** The sub-agent that received the message from its parent; empty for a message of the conversation itself. */
  readonly agentId: string;
  readonly text: string;
  readonly attachments: readonly AttachmentView[];
  /** The sender of a message that is not a person's, such as a schedule. */
  readonly source: string;
  /** The message was accepted and lost with its CLI process: it is not part of the conversation. */
  readonly lost: boolean;
  /** Time of the event in milliseconds since 1970; 0 if unknown. */
  readonly at: number;
  readonly position: Position | undefined;
}

/** A message of the agent, or of a sub-agent. */
export interface MessageItem {
  readonly kind: "message";
  readonly key: string;
  /** The sub-agent; empty for the session's own agent. */
  readonly agentId: string;
  readonly text: string;
  /** More deltas can follow. */
  readonly streaming: boolean;
  /** Time of the first event in milliseconds since 1970; 0 if unknown. */
  readonly at: number;
  readonly position: Position | undefined;
}

/** Reasoning of the model. */
export interface ReasoningItem {
  readonly kind: "reasoning";
  readonly key: string;
  readonly agentId: string;
  readonly text: string;
  readonly streaming: boolean;
  readonly at: number;
  readonly position: Position | undefined;
}

/** A call of a tool. */
export interface ToolItem {
  readonly kind: "tool";
  readonly key: string;
  readonly agentId: string;
  readonly toolCallId: string;
  readonly name: string;
  /** The arguments as JSON text; incomplete while the state is "streaming". */
  readonly argumentsJson: string;
  readonly state: "streaming" | "requested" | "running" | "completed" | "failed";
  /** The output so far, or the result. */
  readonly output: string;
  /** The result for people, such as a diff; empty if it is the same as the output. */
  readonly detail: string;
  /** The latest message about the progress. */
  readonly progress: string;
  /** The error of a failed call. */
  readonly error: string;
  /** Start and end of the execution in milliseconds since 1970; 0 before, or if unknown. */
  readonly startedAt: number;
  readonly endedAt: number;
  readonly position: Position | undefined;
}

/** A message of the CLI about the session. */
export interface NoticeItem {
  readonly kind: "notice";
  readonly key: string;
  readonly level: "info" | "warning" | "error";
  readonly text: string;
  readonly position: Position | undefined;
}

/** Missing events. */
export interface GapItem {
  readonly kind: "gap";
  readonly key: string;
  readonly reason: GapReason;
  readonly after: Position | undefined;
  readonly position: Position | undefined;
}

/** The session's CLI process ended and was replaced. */
export interface RestartItem {
  readonly kind: "restart";
  readonly key: string;
  readonly cause: string;
  readonly position: Position | undefined;
}

/** An entry of the timeline. */
export type ViewItem = UserItem | MessageItem | ReasoningItem | ToolItem | NoticeItem | GapItem | RestartItem;

/** The state of the turn. */
export interface TurnView {
  readonly running: boolean;
  /** What the agent says it is doing. */
  readonly intent: string;
  /** The outcome of the last turn that ended in this stream. */
  readonly outcome: OutcomeData | undefined;
}

/** A sub-agent. */
export interface AgentView {
  readonly agentId: string;
  /** The call of a tool that started it. */
  readonly toolCallId: string;
  readonly name: string;
  readonly state: "running" | "completed" | "failed";
  readonly error: string;
  /** Totals at the end; 0 before. */
  readonly toolCalls: number;
  readonly tokens: number;
  readonly durationMs: number;
}

/** Tokens of the session, as far as this stream reported them. */
export interface UsageView {
  readonly requests: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cost: number;
  /** Tokens in the model's context, and their limit; 0 if unknown. */
  readonly contextTokens: number;
  readonly contextLimit: number;
}

/** What a user interface shows of a session. Values are immutable: `reduce` shares what has not changed. */
export interface View {
  /** The session as last reported; its events update `title` and `model`. */
  readonly session: SessionInfo | undefined;
  readonly title: string;
  readonly model: string;
  /** The timeline. */
  readonly items: readonly ViewItem[];
  readonly turn: TurnView;
  /** Callbacks that wait for an answer, oldest first, if the stream has callbacks. */
  readonly pending: readonly Callback[];
  readonly usage: UsageView;
  /** The sub-agents, in the order of their start. */
  readonly agents: readonly AgentView[];
  /** The replay is complete. */
  readonly caughtUp: boolean;
  /** The server will end this stream soon; the library continues on another one. */
  readonly goingAway: boolean;
  /** The reason for the end of the session's frames. */
  readonly closed: CloseReason | undefined;
  /** The latest position: a stream can continue after it with the same view. */
  readonly position: Position | undefined;
}

/** The view before the first frame. */
export function emptyView(): View {
  return {
    session: undefined,
    title: "",
    model: "",
    items: [],
    turn: { running: false, intent: "", outcome: undefined },
    pending: [],
    usage: { requests: 0, inputTokens: 0, outputTokens: 0, cost: 0, contextTokens: 0, contextLimit: 0 },
    agents: [],
    caughtUp: false,
    goingAway: false,
    closed: undefined,
    position: undefined,
  };
}
