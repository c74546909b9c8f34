import type { Client } from "@copilot-grpc/client";
import { type Connection, heartbeatSeconds, readForever } from "./connection.js";
import { Batch, nextFrame, type Schedule } from "./frames.js";
import { Store } from "./store.js";

type Frame = ReturnType<Client["rpc"]["runtimes"]["watchServerLog"]> extends AsyncIterable<infer T> ? T : never;
export type LogRecord = Extract<Frame["frame"], { case: "record" }>["value"];

/** The warnings and errors of the server. */
export interface LogState {
  /** Newest first. */
  readonly records: readonly LogRecord[];
  /** Number of records that the page missed because it was slow. */
  readonly lost: number;
  readonly complete: boolean;
}

const emptyLog: LogState = { records: [], lost: 0, complete: false };

/** Records that the page shows at most: as many as the server stores. */
const maxRecords = 1_000;

/** The log after frames of its stream; undefined begins a new stream, which repeats what the server has. */
export function applyLog(log: LogState, frames: readonly (Frame | undefined)[]): LogState {
  let { lost, complete } = log;
  let added: LogRecord[] = [];
  let records = log.records;
  for (const each of frames) {
    if (each === undefined) [records, added, lost, complete] = [[], [], 0, false];
    else if (each.frame.case === "record") added.push(each.frame.value);
    else if (each.frame.case === "gap") lost += Number(each.frame.value.lost);
    else if (each.frame.case === "caughtUp") complete = true;
  }
  return { records: [...added.reverse(), ...records].slice(0, maxRecords), lost, complete };
}

/** Follows the server's log while it is started. Only the role admin may. */
export class ServerLog {
  readonly log = new Store<LogState>(emptyLog);
  readonly failure = new Store<Error | undefined>(undefined);
  readonly #client: Client;
  readonly #connection: Connection;
  readonly #isFinal: (error: unknown) => boolean;
  readonly #frames: Batch<Frame | undefined>;
  #over: AbortController | undefined;

  constructor(
    client: Client,
    connection: Connection,
    isFinal: (error: unknown) => boolean,
    schedule: Schedule = nextFrame,
  ) {
    this.#client = client;
    this.#connection = connection;
    this.#isFinal = isFinal;
    this.#frames = new Batch((frames) => this.log.update((log) => applyLog(log, frames)), schedule);
  }

  start(): void {
    if (this.#over) return;
    const over = (this.#over = new AbortController());
    const heartbeatInterval = { seconds: BigInt(heartbeatSeconds) };
    readForever<Frame>({
      name: "server log",
      connection: this.#connection,
      open: (signal) => this.#client.rpc.runtimes.watchServerLog({ heartbeatInterval }, { signal }),
      started: () => this.#frames.add(undefined),
      take: (frame) => this.#frames.add(frame),
      isFinal: this.#isFinal,
      signal: over.signal,
    }).catch((error: unknown) => this.failure.set(error as Error));
  }

  stop(): void {
    this.#over?.abort();
    this.#over = undefined;
    this.#frames.clear();
  }
}
