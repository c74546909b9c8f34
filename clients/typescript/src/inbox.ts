import * as proto from "./proto.js";
import { type CallbackKind, wordOf } from "./words.js";

interface OfCallback {
  /** The callback's id, as in `Session.resolve`. */
  readonly id: string;
  readonly sessionId: string;
  readonly kind: CallbackKind;
  /** The callback as a message, with its request. The request of a very large one is left out: see `totalBytes`. */
  readonly proto: proto.Callback;
}

/** A callback that waits for an answer. */
export interface PendingCallback extends OfCallback {
  readonly state: "waits";
  /**
   * Answers the callback. `answerPermission`, `answerTool` and `answerRaw` make answers. Rejects with the reason
   * CALLBACK_RESOLVED if the callback has ended.
   */
  answer(answer: proto.AnswerInit, options?: { signal?: AbortSignal }): Promise<void>;
}

/** A callback no longer waits, or this program may no longer see it. */
export interface PendingEnd extends OfCallback {
  readonly state: "ended";
  /** How the callback ended, and who answered it; undefined if the server did not say. */
  readonly resolved?: proto.CallbackResolved | undefined;
}

/** A change of the callbacks that wait. */
export type PendingChange = PendingCallback | PendingEnd;

/** Selects the callbacks of `watchPending`. */
export interface WatchPendingOptions {
  /**
   * Callbacks wait for this program, instead of getting their default answers when no participant handles them. This
   * begins with the first change.
   */
  handle?: boolean | undefined;
  /** Default: with `handle` the kinds that people answer, else all but the frequent ones. */
  kinds?: readonly CallbackKind[] | undefined;
  /** Only of sessions with these labels. */
  labels?: Record<string, string> | undefined;
  /** Only of sessions of this tenant. */
  owner?: string | undefined;
  /** Name of the handler for the server's log; default: the client's name. */
  name?: string | undefined;
  /** Time for which callbacks still wait after a broken connection; default 30 s. */
  graceMs?: number | undefined;
  /** Ends the iteration with the signal's reason. */
  signal?: AbortSignal | undefined;
}

function ofCallback(callback: proto.Callback): OfCallback {
  const { callbackId: id, sessionId, kind } = callback;
  return { id, sessionId, kind: wordOf(proto.CallbackKind, kind), proto: callback };
}

/** A callback that waits, and how it is answered. */
export function waiting(callback: proto.Callback, answer: PendingCallback["answer"]): PendingCallback {
  return { state: "waits", ...ofCallback(callback), answer };
}

interface Entry {
  readonly callback: proto.Callback;
  /** False until the list that follows a restart has the callback. */
  confirmed: boolean;
}

/** The callbacks that wait, over one stream after another. Turns the server's messages into changes of the list. */
export class PendingList {
  readonly #waiting: (callback: proto.Callback) => PendingCallback;
  readonly #entries = new Map<string, Entry>();

  constructor(waiting: (callback: proto.Callback) => PendingCallback) {
    this.#waiting = waiting;
  }

  /** Notes that the server lists all callbacks again. */
  restart(): void {
    for (const entry of this.#entries.values()) entry.confirmed = false;
  }

  /** The changes of the list. */
  take({ change }: proto.WatchPendingResponse): PendingChange[] {
    switch (change.case) {
      case "requested":
        return this.#add(change.value);
      case "resolved": {
        const { sessionId, resolved } = change.value;
        const ended = key(sessionId, resolved?.callbackId ?? "");
        return this.#end((id) => id === ended, resolved);
      }
      case "unmatched": {
        const { sessionId } = change.value;
        return this.#end((_, { callback }) => callback.sessionId === sessionId);
      }
      case "reset":
        this.restart();
        return [];
      case "caughtUp":
        return this.#end((_, { confirmed }) => !confirmed);
      default:
        return [];
    }
  }

  #add(callback: proto.Callback): PendingChange[] {
    const id = key(callback.sessionId, callback.callbackId);
    const known = this.#entries.get(id);
    if (known) {
      known.confirmed = true;
      return [];
    }
    this.#entries.set(id, { callback, confirmed: true });
    return [this.#waiting(callback)];
  }

  #end(over: (id: string, entry: Entry) => boolean, resolved?: proto.CallbackResolved): PendingChange[] {
    const ended = [...this.#entries].filter(([id, entry]) => over(id, entry));
    for (const [id] of ended) this.#entries.delete(id);
    return ended.map(([, { callback }]) => ({ state: "ended", ...ofCallback(callback), resolved }));
  }
}

function key(sessionId: string, callbackId: string): string {
  return `${sessionId}/${callbackId}`;
}
