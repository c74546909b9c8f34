import { inMemory, type PromptAttachment } from "./attachments.js";
import type { EventsOptions } from "./events.js";
import type { PromptInit, StreamOptions } from "./proto.js";

/** Options of a prompt. */
export interface SendOptions {
  /** Files, directories, bytes, streams and so on. */
  attachments?: PromptAttachment[] | undefined;
  /** "enqueue" (the default) waits for the end of a running turn, "immediate" steers the running turn. */
  mode?: "enqueue" | "immediate" | undefined;
  /** Every other field of the prompt. */
  prompt?: Omit<PromptInit, "text" | "attachments" | "mode"> | undefined;
  /** Sends the prompt once, also across restarts of this program; default: a random id. */
  requestId?: string | undefined;
  /** Ends the call. For `sendAndWait` and `run` it also aborts the turn, unless `detach` is set. */
  signal?: AbortSignal | undefined;
}

/** Options of a prompt whose turn is awaited. */
export interface TurnOptions extends SendOptions {
  /** The turn continues when the signal aborts. */
  detach?: boolean | undefined;
}

/** Options of `sendAndWait`. */
export interface WaitOptions extends TurnOptions {
  /** Ends the wait with the outcome "timed_out"; the turn continues. */
  timeoutMs?: number | undefined;
  /** Ends the wait if the session has no event for this time; time of tools, callbacks and shells does not count. */
  idleTimeoutMs?: number | undefined;
}

/** Options of `run`. */
export interface RunOptions extends TurnOptions {
  /** The events that the turn yields; default: all except the large ones. */
  filter?: EventsOptions["filter"];
  stream?: StreamOptions | undefined;
}

/** Values of SendMode. */
const SendMode = { enqueue: 1, immediate: 2 } as const;

/** The prompt, with the bytes of its streams. */
export async function promptOf(text: string, { attachments = [], mode, prompt }: SendOptions): Promise<PromptInit> {
  return {
    ...prompt,
    text,
    attachments: await Promise.all(attachments.map(inMemory)),
    ...(mode ? { mode: SendMode[mode] } : {}),
  };
}
