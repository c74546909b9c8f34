import type { Client } from "@connectrpc/connect";
import { abortReason, every, linkedController } from "./async.js";
import { Backoff, type ReconnectPolicy } from "./backoff.js";
import { ClosedError, isBroken, toCopilotError, unavailable } from "./errors.js";
import type { Logger } from "./logger.js";
import { comparePositions, type Progress } from "./position.js";
import {
  CloseReason,
  type Event,
  type EventFilter,
  type EventService,
  type GapMessage,
  GapReason as Reason,
  type Position,
  StreamStart,
  type StreamOptions,
  type SubscribeResponse,
} from "./proto.js";
import { type GapReason, wordOf } from "./words.js";

/** Selects events and where to begin. */
export interface EventsOptions {
  /**
   * "beginning" is the session's first event, "now" the next event; a position continues after it. Default: the
   * position at which this program opened the session, and the first event for a created session or a handle.
   */
  from?: "beginning" | "now" | Position | undefined;
  /** Only these types, "assistant.message" or "assistant.*" for a family. Replaces `filter.types`. */
  types?: string[] | undefined;
  /** Further conditions. Default: all events except the large ones. */
  filter?: EventFilter | undefined;
  /** Fidelity, original JSON and similar. */
  stream?: StreamOptions | undefined;
  /** Also yields gaps of ephemeral events, such as the deltas of old turns. Default: false. `frames` yields all gaps. */
  ephemeralGaps?: boolean | undefined;
  /** `frames` only: also yields the callbacks of the session. */
  callbacks?: boolean | undefined;
  /** Ends the iteration with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** A range of missing events, in the place where they would be. */
export class Gap {
  /** The gap as a message, with the session's current state to restart from. */
  readonly proto: GapMessage;

  /** @internal */
  constructor(message: GapMessage) {
    this.proto = message;
  }

  /** Why the events are missing. */
  get reason(): GapReason {
    return wordOf(Reason, this.proto.reason);
  }

  /** The last position before the missing events. */
  get after(): Position | undefined {
    return this.proto.after;
  }

  /** The last missing position. */
  get through(): Position | undefined {
    return this.proto.through;
  }
}

/**
 * An event, or a range of missing events. {@link isGap} tells them apart. Gaps of ephemeral events are left out unless
 * {@link EventsOptions.ephemeralGaps} is set.
 */
export type EventOrGap = Event | Gap;

/** Reports whether an item of an event stream is a range of missing events. */
export function isGap(item: EventOrGap): item is Gap {
  return item instanceof Gap;
}

/** What a reader of the journal needs. */
export interface ReaderEnvironment {
  readonly events: Client<typeof EventService>;
  readonly sessionId: string;
  readonly reconnect: ReconnectPolicy;
  readonly logger: Logger;
  readonly progress: Progress;
  /** Aborts when the session is closed by this program: the iteration then ends. */
  readonly over: AbortSignal;
}

/** Yields the frames of a session over one stream after another, each event once. */
export async function* readFrames(env: ReaderEnvironment, options: EventsOptions): AsyncGenerator<SubscribeResponse> {
  const { controller, release } = linkedController(options.signal, env.over);
  const cursor = new Cursor(env.progress, options.from);
  const backoff = new Backoff(env.reconnect);
  try {
    for (;;) {
      let error: Error;
      try {
        const open = (signal: AbortSignal) => env.events.subscribe(cursor.request(env, options), { signal });
        for await (const frame of readCall(open, silenceMs(env.reconnect, options.stream), controller.signal)) {
          backoff.reset();
          const { over, again } = cursor.take(frame);
          if (again) throw again;
          if (frame.frame.case !== undefined) yield frame;
          if (over) return;
        }
        error = unavailable("the server ended the event stream");
      } catch (thrown) {
        error = toCopilotError(thrown);
      }
      if (env.over.aborted) return;
      if (options.signal?.aborted) throw abortReason(options.signal);
      if (!isBroken(error) || !(await backoff.wait(error, controller.signal))) {
        if (env.over.aborted) return;
        throw options.signal?.aborted ? abortReason(options.signal) : error;
      }
      env.logger.warn("event stream broken", { session_id: env.sessionId, error });
    }
  } finally {
    release();
  }
}

/** Yields the events and gaps of frames; gaps of ephemeral events only if they are wanted. */
export async function* eventsOf(
  frames: AsyncIterable<SubscribeResponse>,
  ephemeralGaps = false,
): AsyncGenerator<EventOrGap> {
  for await (const { frame } of frames) {
    if (frame.case === "events") yield* frame.value.events;
    else if (frame.case === "gap" && (ephemeralGaps || frame.value.reason !== Reason.EPHEMERAL_LOST))
      yield new Gap(frame.value);
  }
}

/** A position in a session's journal. */
export class Cursor {
  readonly #progress: Progress;
  readonly #tail: boolean;
  #after: Position | undefined;

  constructor(progress: Progress, from: EventsOptions["from"]) {
    this.#progress = progress;
    this.#tail = from === "now";
    this.#after = typeof from === "object" ? from : undefined;
  }

  request(env: ReaderEnvironment, options: EventsOptions) {
    const heartbeat = env.reconnect.heartbeatMs;
    return {
      sessions: [
        {
          sessionId: env.sessionId,
          start: this.#tail ? StreamStart.END : StreamStart.BEGINNING,
          ...(this.#after ? { after: this.#after } : {}),
          ...filterOf(options),
        },
      ],
      callbacks: options.callbacks ?? false,
      options: { heartbeatInterval: { seconds: BigInt(Math.max(1, Math.floor(heartbeat / 1000))) }, ...options.stream },
    };
  }

  /**
   * Moves past a frame and removes the events that were passed before; a frame without other events becomes empty.
   * `over` reports the end of the session's frames, `again` that the stream must be opened again.
   */
  take(response: SubscribeResponse): { over: boolean; again?: Error } {
    const { frame } = response;
    if (frame.case === "started") this.#progress.note(frame.value.position);
    if (frame.case === "events") {
      frame.value.events = frame.value.events.filter((event) => this.#move(event.position));
      if (frame.value.events.length === 0) response.frame = { case: undefined };
    }
    if (frame.case === "closed") {
      if (frame.value.reason === CloseReason.DRAINING)
        return { over: false, again: unavailable("the server is draining") };
      return { over: true };
    }
    // After GoAway the server sends what is left; the next stream continues after it.
    this.#move(response.resumeAfter);
    return { over: false };
  }

  #move(to: Position | undefined): boolean {
    if (!to || comparePositions(to, this.#after) <= 0) return false;
    this.#after = to;
    this.#progress.note(to);
    return true;
  }
}

function filterOf({ types, filter }: EventsOptions): { filter?: EventFilter } {
  if (!types) return filter ? { filter } : {};
  return { filter: { ...filter, types } };
}

/** Time after which a silent stream is broken: three heartbeats. */
export function silenceMs(reconnect: ReconnectPolicy, stream: StreamOptions | undefined): number {
  return 3 * Math.max(reconnect.heartbeatMs, Number(stream?.heartbeatInterval?.seconds ?? 0n) * 1000);
}

/**
 * Passes the frames of a call on, and fails if none arrives in time. The time between two reads does not count. The
 * call ends with the iteration: leaving a loop alone would not end it.
 */
export async function* readCall<T>(
  open: (signal: AbortSignal) => AsyncIterable<T>,
  limitMs: number,
  signal: AbortSignal,
): AsyncGenerator<T> {
  const { controller, release } = linkedController(signal);
  let readingSince: number | undefined;
  const timer = every(limitMs / 3, () => {
    if (readingSince !== undefined && Date.now() - readingSince > limitMs)
      controller.abort(unavailable("the server is silent"));
  });
  try {
    const frames = open(controller.signal)[Symbol.asyncIterator]();
    for (;;) {
      readingSince = Date.now();
      const { done, value } = await frames.next();
      readingSince = undefined;
      if (done) return;
      yield value;
    }
  } catch (error) {
    throw controller.signal.aborted ? abortReason(controller.signal) : error;
  } finally {
    clearInterval(timer);
    release();
    controller.abort(new ClosedError("the iteration has ended"));
  }
}
