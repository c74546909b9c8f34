import type { AnswerInit, Callback, CallbackKind, CallbackResolved, WatchPendingResponse } from "./proto.js";

/** A callback of any session that waits for an answer. */
export interface PendingCallback {
  readonly state: "waits";
  /** Without its request if that is very large: see `Callback.totalBytes`. */
  readonly callback: Callback;
  /**
   * Answers the callback. `answerPermission`, `answerTool` and `answerRaw` make answers. Rejects with the reason
   * CALLBACK_RESOLVED if the callback has ended.
   */
  answer(answer: AnswerInit, options?: { signal?: AbortSignal }): Promise<void>;
}

/** A callback no longer waits, or this program may no longer see it. */
export interface PendingEnd {
  readonly state: "ended";
  readonly callback: Callback;
  /** How the callback ended, and who answered it; undefined if the server did not say. */
  readonly resolved?: CallbackResolved | undefined;
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
  kinds?: CallbackKind[] | undefined;
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

/** Answers a callback. */
type Resolve = (callback: Callback, answer: AnswerInit, signal: AbortSignal | undefined) => Promise<void>;

interface Entry {
  readonly callback: Callback;
  /** False until the list that follows a restart has the callback. */
  confirmed: boolean;
}

/** The callbacks that wait, over one stream after another. Turns the server's messages into changes of the list. */
export class PendingList {
  readonly #resolve: Resolve;
  readonly #entries = new Map<string, Entry>();

  constructor(resolve: Resolve) {
    this.#resolve = resolve;
  }

  /** Notes that the server lists all callbacks again. */
  restart(): void {
    for (const entry of this.#entries.values()) entry.confirmed = false;
  }

  /** The changes of the list. */
  take({ change }: WatchPendingResponse): PendingChange[] {
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

  #add(callback: Callback): PendingChange[] {
    const id = key(callback.sessionId, callback.callbackId);
    const known = this.#entries.get(id);
    if (known) {
      known.confirmed = true;
      return [];
    }
    this.#entries.set(id, { callback, confirmed: true });
    const answer: PendingCallback["answer"] = (value, options = {}) => this.#resolve(callback, value, options.signal);
    return [{ state: "waits", callback, answer }];
  }

  #end(over: (id: string, entry: Entry) => boolean, resolved?: CallbackResolved): PendingChange[] {
    const ended = [...this.#entries].filter(([id, entry]) => over(id, entry));
    for (const [id] of ended) this.#entries.delete(id);
    return ended.map(([, { callback }]) => ({ state: "ended", callback, resolved }));
  }
}

function key(sessionId: string, callbackId: string): string {
  return `${sessionId}/${callbackId}`;
}
