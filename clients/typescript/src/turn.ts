import type { Client } from "@connectrpc/connect";
import { abortReason } from "./async.js";
import { Backoff, type ReconnectPolicy } from "./backoff.js";
import { hideProperties, isBroken, toCopilotError, unavailable } from "./errors.js";
import { Cursor, type EventOrGap, eventsOf, isGap, readCall, silenceMs } from "./events.js";
import type { Logger } from "./logger.js";
import type { Progress } from "./position.js";
import {
  type EventFilter,
  ErrorReason,
  type Position,
  type PromptInit,
  type SessionService,
  type StreamOptions,
  type SubscribeResponse,
  type TurnOutcome,
  TurnStatus,
} from "./proto.js";

/** The failure that ended a turn. */
export interface TurnFailure {
  /** The CLI's error type: query, rate_limit, authentication and others. */
  readonly type: string;
  readonly message: string;
  /** HTTP status of the model endpoint, if any. */
  readonly statusCode: number | undefined;
  /** "NOT_SIGNED_IN" if the CLI has no login; the message then describes the remedy. */
  readonly reason: string | undefined;
}

/** The end of a turn, as data. `failed`, `runtime_lost` and `stalled` outcomes have an `error`. */
export type OutcomeData = OutcomeFields &
  (
    | { readonly status: "completed" | "aborted" | "timed_out" | "unspecified"; readonly error: undefined }
    | { readonly status: "failed" | "runtime_lost" | "stalled"; readonly error: TurnFailure }
  );

interface OutcomeFields {
  /** The agent's last message of the turn; empty if there is none. */
  readonly text: string;
  /** The id of the prompt's message; empty in a view. */
  readonly messageId: string;
  /** Position of the agent's last message, and of the turn's end. */
  readonly messagePosition: Position | undefined;
  readonly endPosition: Position | undefined;
}

/** The end of a turn. */
export type Outcome = OutcomeData & {
  /** Returns the outcome if the turn completed, and throws an {@link OutcomeError} otherwise. */
  orThrow(): Outcome;
};

/** A turn that did not complete. */
export class OutcomeError extends Error {
  override readonly name: string = "OutcomeError";
  readonly outcome: Outcome;

  constructor(outcome: Outcome) {
    super(`the turn ended as ${outcome.status}${outcome.error ? `: ${outcome.error.message}` : ""}`);
    this.outcome = outcome;
    hideProperties(this);
  }
}

export function newOutcome(messageId: string, turn: TurnOutcome | undefined): Outcome {
  const outcome: Outcome = {
    ...outcomeData(messageId, turn),
    orThrow() {
      if (outcome.status !== "completed") throw new OutcomeError(outcome);
      return outcome;
    },
  };
  return outcome;
}

export function outcomeData(messageId: string, turn: TurnOutcome | undefined): OutcomeData {
  const fields = {
    text: turn?.text ?? "",
    messageId,
    messagePosition: turn?.messagePosition,
    endPosition: turn?.endPosition,
  };
  const status = (TurnStatus[turn?.status ?? TurnStatus.UNSPECIFIED] ?? "unspecified").toLowerCase();
  if (turn && withError.has(turn.status)) return { ...fields, status: status as "failed", error: turnFailure(turn) };
  return { ...fields, status: status as "completed", error: undefined };
}

const withError = new Set([TurnStatus.FAILED, TurnStatus.RUNTIME_LOST, TurnStatus.STALLED]);

function turnFailure({ error }: TurnOutcome): TurnFailure {
  return {
    type: error?.errorType ?? "",
    message: error?.message ?? "the turn failed without details",
    statusCode: error?.statusCode,
    reason: error?.reason ? ErrorReason[error.reason] : undefined,
  };
}

/** What a turn needs of its session. */
export interface TurnEnvironment {
  readonly sessions: Client<typeof SessionService>;
  readonly sessionId: string;
  readonly reconnect: ReconnectPolicy;
  readonly logger: Logger;
  readonly progress: Progress;
  readonly requestId: string;
  readonly prompt: () => Promise<PromptInit>;
  readonly filter: EventFilter | undefined;
  readonly stream: StreamOptions | undefined;
  readonly signal: AbortSignal;
  /** Called when the signal aborted the reading. */
  readonly onAbort: () => Promise<void>;
}

/**
 * A prompt and the agent's work on it. The prompt is sent when the turn is first read. Exactly one reader can iterate;
 * `outcome` reads what an iteration has left.
 */
export class Turn implements AsyncIterable<EventOrGap> {
  readonly #env: TurnEnvironment;
  readonly #cursor: Cursor;
  readonly #frames: AsyncGenerator<SubscribeResponse, void>;
  #used = false;
  #messageId = "";
  #outcome: Outcome | undefined;

  /** @internal */
  constructor(env: TurnEnvironment) {
    this.#env = env;
    this.#cursor = new Cursor(env.progress, undefined);
    this.#frames = this.#read();
  }

  /** Sends the prompt and yields the turn's frames: events in batches, gaps, callbacks, restarts. */
  frames(): AsyncIterable<SubscribeResponse> {
    if (this.#used) throw new TypeError("the turn has a reader already");
    this.#used = true;
    const frames = this.#frames;
    // The generator continues after the loop was left: outcome() reads the rest.
    return { [Symbol.asyncIterator]: () => ({ next: () => frames.next() }) };
  }

  /** Sends the prompt and yields the session's events until the turn has ended. */
  [Symbol.asyncIterator](): AsyncIterator<EventOrGap> {
    return eventsOf(this.frames());
  }

  /**
   * Sends the prompt and yields the agent's text as it is generated. A session or a model that does not stream yields
   * whole messages. Texts of sub-agents are not included.
   */
  async *deltas(): AsyncGenerator<string> {
    const streamed = new Set<string>();
    for await (const item of this) {
      if (isGap(item) || item.event?.agentId) continue;
      const { data } = item.event ?? {};
      if (data?.case === "assistantMessageDelta") {
        streamed.add(data.value.messageId);
        yield data.value.deltaContent;
      } else if (data?.case === "assistantMessage" && data.value.content && !streamed.has(data.value.messageId)) {
        yield data.value.content;
      }
    }
  }

  /** Returns the end of the turn; sends the prompt first if nothing was read. */
  async outcome(): Promise<Outcome> {
    this.#used = true;
    while (!this.#outcome) {
      const { done } = await this.#frames.next();
      if (done && !this.#outcome) throw unavailable("the turn's reading has ended without an outcome");
    }
    return this.#outcome;
  }

  /** Reads the turn over one stream after another: the request id makes the server send the prompt once. */
  async *#read(): AsyncGenerator<SubscribeResponse, void> {
    const { reconnect, signal } = this.#env;
    const backoff = new Backoff(reconnect);
    const prompt = await this.#env.prompt();
    for (;;) {
      let error: Error;
      try {
        yield* this.#readOnce(prompt, backoff);
        if (this.#outcome) return;
        error = unavailable("the server ended the turn's stream without an outcome");
      } catch (thrown) {
        error = toCopilotError(thrown);
      }
      if (signal.aborted || !isBroken(error) || !(await backoff.wait(error, signal))) {
        if (!signal.aborted) throw error;
        await this.#env.onAbort();
        throw abortReason(signal);
      }
    }
  }

  async *#readOnce(prompt: PromptInit, backoff: Backoff): AsyncGenerator<SubscribeResponse, void> {
    const { sessions, sessionId, requestId, filter, stream, reconnect, logger, signal, progress } = this.#env;
    const request = {
      requestId,
      prompt,
      session: { case: "sessionId" as const, value: sessionId },
      ...(filter ? { filter } : {}),
      ...(stream ? { options: stream } : {}),
    };
    const open = (call: AbortSignal) => sessions.run(request, { signal: call });
    for await (const { frame } of readCall(open, silenceMs(reconnect, stream), signal)) {
      backoff.reset();
      switch (frame.case) {
        case "progress":
          logger.debug("waiting for the server", { session_id: sessionId, detail: frame.value.detail });
          break;
        case "started":
          this.#messageId = frame.value.messageId;
          progress.note(frame.value.position);
          break;
        case "outcome":
          progress.note(frame.value.endPosition);
          this.#outcome = newOutcome(this.#messageId, frame.value);
          return;
        case "stream": {
          const { again } = this.#cursor.take(frame.value);
          if (again) throw again;
          if (frame.value.frame.case !== undefined) yield frame.value;
          break;
        }
      }
    }
  }
}
