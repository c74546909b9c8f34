import { hideProperties } from "./errors.js";
import * as proto from "./proto.js";
import { type CallbackKind, type CallbackOutcome, wordOf } from "./words.js";

/** The callback that a handler answers. */
export interface Call {
  readonly sessionId: string;
  readonly callbackId: string;
  /** The kind, such as "permission" or "tool_call". */
  readonly kind: CallbackKind;
  /** Aborts when the answer is no longer needed; the reason is a {@link WithdrawnError} or the end of the session. */
  readonly signal: AbortSignal;
  /** Time of the server's default answer; undefined for none. */
  readonly deadline: Date | undefined;
  /**
   * W3C trace context of the turn: the headers `traceparent` and `tracestate`, for a propagator. Empty if there is
   * none.
   */
  readonly traceContext: Readonly<Record<string, string>>;
  /** The complete request. */
  readonly callback: proto.Callback;
}

/** The callback ended before its handler did. */
export class WithdrawnError extends Error {
  override readonly name: string = "WithdrawnError";
  /** How the callback ended; undefined if that happened while the connection was broken. */
  readonly outcome: CallbackOutcome | undefined;
  /** The participant that answered, if one did. */
  readonly participantId: string | undefined;

  constructor(outcome?: proto.CallbackOutcome, participantId?: string) {
    super("the callback has ended");
    this.outcome = outcome === undefined ? undefined : wordOf(proto.CallbackOutcome, outcome);
    this.participantId = participantId || undefined;
    hideProperties(this);
  }
}

/** The call of a callback. `signal` makes the call's signal when it is first asked for. */
export function newCall(callback: proto.Callback, signal: () => AbortSignal): Call {
  const traceContext: Record<string, string> = {};
  if (callback.traceparent) traceContext["traceparent"] = callback.traceparent;
  if (callback.tracestate) traceContext["tracestate"] = callback.tracestate;
  const { deadline } = callback;
  return {
    sessionId: callback.sessionId,
    callbackId: callback.callbackId,
    kind: wordOf(proto.CallbackKind, callback.kind),
    get signal() {
      return signal();
    },
    deadline: deadline && new Date(Number(deadline.seconds) * 1000 + deadline.nanos / 1e6),
    traceContext,
    callback,
  };
}
