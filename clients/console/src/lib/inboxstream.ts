import { type Callback, CallbackOutcome, type Client } from "@copilot-grpc/client";
import { type Connection, readForever } from "./connection.js";
import { Batch, nextFrame, type Schedule } from "./frames.js";
import { applyInbox, emptyInbox, type Inbox, type InboxChange, keyOf, settledMs } from "./inbox.js";
import { Store } from "./store.js";

const pollMs = 1_500;

/** Follows what waits for a person, over all sessions of the caller. */
export class InboxStream {
  readonly inbox = new Store<Inbox>(emptyInbox);
  readonly failure = new Store<Error | undefined>(undefined);
  readonly #client: Client;
  readonly #connection: Connection;
  readonly #isFinal: (error: unknown) => boolean;
  readonly #changes: Batch<InboxChange>;
  readonly #own = new Set<string>();
  #over: AbortController | undefined;
  #fade: ReturnType<typeof setTimeout> | undefined;

  constructor(
    client: Client,
    connection: Connection,
    isFinal: (error: unknown) => boolean,
    schedule: Schedule = nextFrame,
  ) {
    this.#client = client;
    this.#connection = connection;
    this.#isFinal = isFinal;
    this.#changes = new Batch((changes) => this.#apply(changes), schedule);
  }

  start(): void {
    if (this.#over) return;
    const over = (this.#over = new AbortController());
    readForever<InboxChange>({
      name: "inbox",
      connection: this.#connection,
      open: (signal) => this.#poll(signal),
      take: (change) => this.#changes.add(change),
      isFinal: this.#isFinal,
      signal: over.signal,
    }).catch((error: unknown) => this.failure.set(error as Error));
  }

  stop(): void {
    this.#over?.abort();
    this.#over = undefined;
    clearTimeout(this.#fade);
    this.#changes.clear();
  }

  /** This page answers a callback: it disappears without a word. */
  answers({ sessionId, callbackId }: Callback): void {
    this.#own.add(keyOf(sessionId, callbackId));
  }

  #apply(changes: readonly InboxChange[]): void {
    this.inbox.update((inbox) => applyInbox(inbox, changes, this.#own, Date.now()));
    clearTimeout(this.#fade);
    if (this.inbox.get().settled.length > 0) {
      this.#fade = setTimeout(() => this.#apply([]), settledMs + 50);
    }
  }

  async *#poll(signal: AbortSignal): AsyncGenerator<InboxChange> {
    let known = new Map<string, Callback>();
    yield { kind: "reset" };
    while (!signal.aborted) {
      const found = new Map<string, Callback>();
      for await (const callback of this.#client.pending({ signal })) {
        const key = keyOf(callback.sessionId, callback.callbackId);
        found.set(key, callback);
        if (!known.has(key)) yield { kind: "requested", callback };
      }
      for (const [key, { sessionId, callbackId }] of known) {
        if (found.has(key)) continue;
        const outcome = CallbackOutcome.UNSPECIFIED;
        yield { kind: "resolved", sessionId, callbackId, outcome, answeredBy: "" };
      }
      known = found;
      yield { kind: "caughtUp" };
      await new Promise((resolve) => setTimeout(resolve, pollMs));
    }
  }
}
