import type { Client, GetServerInfoResponse } from "@copilot-grpc/client";
import { Store } from "./store.js";

export type RuntimeInfo = Awaited<ReturnType<Client["rpc"]["runtimes"]["listRuntimes"]>>["runtimes"][number];

/** The server and its CLI processes. */
export interface RuntimesState {
  readonly info: GetServerInfoResponse;
  readonly runtimes: readonly RuntimeInfo[];
  /** Time of the last call from this page to the server and back. */
  readonly latencyMs: number;
  /** The server's own report, such as "SERVING" or "NOT_SERVING"; empty if it cannot be read. */
  readonly health: string;
}

/** Asks for the server's health. Plain JSON: the console does not contain the messages of the service. */
async function healthOf(signal: AbortSignal): Promise<string> {
  const reply = await fetch("/grpc.health.v1.Health/Check", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: "{}",
    signal,
  });
  return reply.ok ? (((await reply.json()) as { status?: string }).status ?? "") : "";
}

const pollMs = 2_000;

/** Asks for the CLI processes again and again. */
export class RuntimesPoll {
  readonly state = new Store<RuntimesState | undefined>(undefined);
  readonly failure = new Store<Error | undefined>(undefined);
  readonly #client: Client;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #over = new AbortController();

  constructor(client: Client) {
    this.#client = client;
  }

  start(): void {
    this.#over = new AbortController();
    void this.#ask(this.#over.signal);
  }

  stop(): void {
    this.#over.abort();
    clearTimeout(this.#timer);
  }

  /** Asks at once, after a change of this page. */
  refresh(): void {
    this.stop();
    this.start();
  }

  async #ask(signal: AbortSignal): Promise<void> {
    try {
      const { runtimes } = await this.#client.rpc.runtimes.listRuntimes({}, { signal });
      const began = performance.now();
      const info = await this.#client.serverInfo({ signal });
      const latencyMs = performance.now() - began;
      this.state.set({ info, runtimes, latencyMs, health: await healthOf(signal) });
      this.failure.set(undefined);
    } catch (error) {
      if (!signal.aborted) this.failure.set(error as Error);
    }
    if (!signal.aborted) this.#timer = setTimeout(() => void this.#ask(signal), pollMs);
  }
}

/** The name of a state, and how it is shown. */
export function stateName(state: number): { readonly text: string; readonly tone: "ok" | "warn" | "bad" | "" } {
  switch (state) {
    case 1:
      return { text: "starting", tone: "warn" };
    case 2:
      return { text: "ready", tone: "ok" };
    case 3:
      return { text: "stopping", tone: "warn" };
    case 4:
      return { text: "down", tone: "bad" };
    case 5:
      return { text: "draining", tone: "warn" };
    default:
      return { text: "unknown", tone: "" };
  }
}
