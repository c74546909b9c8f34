import type { Callback, Client } from "@copilot-grpc/client";
import { type Connection, heartbeatSeconds, readForever } from "./connection.js";
import { Batch, nextFrame, type Schedule } from "./frames.js";
import { applyInbox, emptyInbox, type Inbox, type InboxChange, keyOf, settledMs } from "./inbox.js";
import { peopleKinds } from "./sessions.js";
import { Store } from "./store.js";

type Change = ReturnType<Client["rpc"]["callbacks"]["watchPending"]> extends AsyncIterable<infer T> ? T : never;

/** Who reads the inbox. */
export interface InboxReader {
  /** Name for other users and logs. */
  readonly name: string;
  /** Requests wait for this page, also in sessions without another handler. */
  readonly handles: boolean;
}

/** Follows what waits for a person, over all sessions of the caller. */
export class InboxStream {
  readonly inbox = new Store<Inbox>(emptyInbox);
  readonly failure = new Store<Error | undefined>(undefined);
  readonly #client: Client;
  readonly #connection: Connection;
  readonly #isFinal: (error: unknown) => boolean;
  readonly #changes: Batch<InboxChange>;
  readonly #own = new Set<string>();
  readonly #reader: InboxReader;
  #over: AbortController | undefined;
  #fade: ReturnType<typeof setTimeout> | undefined;

  constructor(
    client: Client,
    connection: Connection,
    isFinal: (error: unknown) => boolean,
    reader: InboxReader,
    schedule: Schedule = nextFrame,
  ) {
    this.#client = client;
    this.#connection = connection;
    this.#isFinal = isFinal;
    this.#reader = reader;
    this.#changes = new Batch((changes) => this.#apply(changes), schedule);
  }

  start(): void {
    if (this.#over) return;
    const over = (this.#over = new AbortController());
    const { name, handles: handle } = this.#reader;
    const heartbeatInterval = { seconds: BigInt(heartbeatSeconds) };
    const request = { filter: { kinds: [...peopleKinds] }, handle, name, heartbeatInterval };
    readForever<Change>({
      name: "inbox",
      connection: this.#connection,
      open: (signal) => this.#client.rpc.callbacks.watchPending(request, { signal }),
      started: () => this.#changes.add({ kind: "reset" }),
      take: (change) => this.#take(change),
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

  /** This page answers a callback: it disappears without a word, unless the answer failed. */
  answers({ sessionId, callbackId }: Callback, failed = false): void {
    const key = keyOf(sessionId, callbackId);
    if (failed) this.#own.delete(key);
    else this.#own.add(key);
  }

  #take({ change }: Change): void {
    switch (change.case) {
      case "requested":
        this.#changes.add({ kind: "requested", callback: change.value });
        break;
      case "resolved": {
        const { sessionId, resolved } = change.value;
        if (!resolved) break;
        const { callbackId, outcome, answeredBy } = resolved;
        this.#changes.add({ kind: "resolved", sessionId, callbackId, outcome, answeredBy });
        break;
      }
      case "caughtUp":
      case "reset":
        this.#changes.add({ kind: change.case });
        break;
      case "unmatched":
        this.#changes.add({ kind: "unmatched", sessionId: change.value.sessionId });
        break;
    }
  }

  #apply(changes: readonly InboxChange[]): void {
    this.inbox.update((inbox) => applyInbox(inbox, changes, this.#own, Date.now()));
    clearTimeout(this.#fade);
    if (this.inbox.get().settled.length > 0) {
      this.#fade = setTimeout(() => this.#apply([]), settledMs + 50);
    }
  }
}
