import { Store } from "./store.js";

/** The state of the connection to the server, over all streams of the page. */
export type ConnectionState = "connecting" | "live" | "reconnecting";

/** Follows the streams of the page: the connection is live if no stream is broken. */
export class Connection {
  readonly state = new Store<ConnectionState>("connecting");
  readonly #broken = new Set<string>();

  /** A stream of this name broke, and is opened again. */
  broken(name: string): void {
    this.#broken.add(name);
    this.state.set("reconnecting");
  }

  /** A stream received a frame. */
  live(name: string): void {
    this.#broken.delete(name);
    if (this.#broken.size === 0) this.state.set("live");
  }

  /** A stream was closed by the page. */
  closed(name: string): void {
    this.#broken.delete(name);
    if (this.#broken.size === 0 && this.state.get() === "reconnecting") this.state.set("live");
  }
}

/** Shows at once that the browser has no network. The streams notice it, or the end of it, by themselves. */
export function followNetwork(connection: Connection, target: Pick<Window, "addEventListener"> = window): void {
  target.addEventListener("offline", () => connection.broken("network"));
  target.addEventListener("online", () => connection.closed("network"));
}

/** How a stream is read. */
export interface StreamReader<T> {
  /** Name for {@link Connection}. */
  readonly name: string;
  readonly connection: Connection;
  open(signal: AbortSignal): AsyncIterable<T>;
  /** The stream starts again: what follows replaces what was received. */
  started?(): void;
  take(item: T): void;
  /** Reports whether an error ends the reading for good. */
  isFinal(error: unknown): boolean;
  readonly signal: AbortSignal;
  /** A stream without a frame for this time is broken, in milliseconds. Default 45,000: three heartbeats. */
  readonly silenceMs?: number;
  /** Waits before another attempt; tests replace it. */
  readonly wait?: (ms: number, signal: AbortSignal) => Promise<void>;
}

/** Interval of the heartbeats that streams ask for. */
export const heartbeatSeconds = 15;

const minWaitMs = 250;
const maxWaitMs = 5_000;

/**
 * Reads a stream without positions until the signal aborts, and opens it again when it ends. Rejects with the error
 * that is final.
 */
export async function readForever<T>(reader: StreamReader<T>): Promise<void> {
  const { name, connection, signal, wait = pause } = reader;
  let delay = minWaitMs;
  while (!signal.aborted) {
    const call = new Call(signal, reader.silenceMs ?? 3 * 1000 * heartbeatSeconds);
    try {
      let started = false;
      for await (const item of reader.open(call.signal)) {
        if (signal.aborted) break;
        call.heard();
        if (!started) reader.started?.();
        started = true;
        delay = minWaitMs;
        connection.live(name);
        reader.take(item);
      }
    } catch (error) {
      if (!signal.aborted && reader.isFinal(error)) {
        connection.closed(name);
        throw error;
      }
    } finally {
      call.end();
    }
    if (signal.aborted) break;
    connection.broken(name);
    await wait(delay * (0.5 + Math.random() / 2), signal);
    delay = Math.min(2 * delay, maxWaitMs);
  }
  connection.closed(name);
}

/** One call of a stream: it ends with its reader, or after silence. */
class Call {
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal;
  readonly #silenceMs: number;
  readonly #onAbort = () => this.#controller.abort();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(outer: AbortSignal, silenceMs: number) {
    this.#outer = outer;
    this.#silenceMs = silenceMs;
    outer.addEventListener("abort", this.#onAbort, { once: true });
    this.heard();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  heard(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#onAbort, this.#silenceMs);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#outer.removeEventListener("abort", this.#onAbort);
    this.#controller.abort();
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done, { once: true });
  });
}
