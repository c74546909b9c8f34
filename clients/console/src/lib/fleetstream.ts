import type { Client } from "@copilot-grpc/client";
import { SessionChange, type WatchSessionsResponse } from "@copilot-grpc/client/gen/copilot/bridge/v1/event_service_pb";
import type { Session as SessionMessage } from "@copilot-grpc/client/gen/copilot/bridge/v1/session_pb";
import { type Connection, heartbeatSeconds, readForever } from "./connection.js";
import { applyChanges, applyList, emptyFleet, type Fleet } from "./fleet.js";
import { Batch, nextFrame, type Schedule } from "./frames.js";
import { Store } from "./store.js";

const heartbeatInterval = { seconds: BigInt(heartbeatSeconds) };

/** Follows all sessions of the caller while it is started. */
export class FleetStream {
  readonly fleet = new Store<Fleet>(emptyFleet);
  /** The error of the last attempt to list or watch the sessions. */
  readonly failure = new Store<Error | undefined>(undefined);
  readonly #client: Client;
  readonly #connection: Connection;
  readonly #isFinal: (error: unknown) => boolean;
  readonly #changes: Batch<WatchSessionsResponse>;
  /** The sessions that the current stream reported. */
  #streamed = new Set<string>();
  #over: AbortController | undefined;
  #listing: AbortController | undefined;

  constructor(
    client: Client,
    connection: Connection,
    isFinal: (error: unknown) => boolean,
    schedule: Schedule = nextFrame,
  ) {
    this.#client = client;
    this.#connection = connection;
    this.#isFinal = isFinal;
    this.#changes = new Batch((changes) => this.fleet.update((fleet) => applyChanges(fleet, changes)), schedule);
  }

  start(): void {
    if (this.#over) return;
    const over = (this.#over = new AbortController());
    this.failure.set(undefined);
    readForever<WatchSessionsResponse>({
      name: "sessions",
      connection: this.#connection,
      // Not Client.watchSessions: the page shows when a stream breaks, and lists again when it is back.
      open: (signal) => this.#client.rpc.events.watchSessions({ heartbeatInterval }, { signal }),
      started: () => this.#restart(),
      take: (change) => this.#take(change),
      isFinal: this.#isFinal,
      signal: over.signal,
    }).catch((error: unknown) => this.failure.set(error as Error));
    // Without open sessions the stream is silent until its first heartbeat. Its begin lists again: changes before it
    // are not in the stream.
    this.#restart();
  }

  stop(): void {
    this.#over?.abort();
    this.#over = undefined;
    this.#listing?.abort();
    this.#changes.clear();
  }

  #take(change: WatchSessionsResponse): void {
    if (change.change === SessionChange.RESET) this.#restart();
    if (change.session) this.#streamed.add(change.session.sessionId);
    this.#changes.add(change);
  }

  /** The stream has the open sessions only, and not what happened before it: list all again. */
  #restart(): void {
    this.#streamed = new Set();
    this.#listing?.abort();
    this.#listing = new AbortController();
    void this.#list(this.#listing.signal);
  }

  async #list(signal: AbortSignal): Promise<void> {
    const sessions: SessionMessage[] = [];
    try {
      for await (const { proto } of this.#client.listSessions({ signal })) sessions.push(proto);
    } catch (error) {
      // The open sessions are there all the same. The next stream lists again.
      if (!signal.aborted) this.failure.set(error as Error);
      return;
    }
    if (signal.aborted) return;
    this.failure.set(undefined);
    this.#changes.flush();
    this.fleet.update((fleet) => applyList(fleet, sessions, this.#streamed));
  }
}
