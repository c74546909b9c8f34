import { type Client, type Event, formatPosition } from "@copilot-grpc/client";
import type { Position } from "@copilot-grpc/client/gen/copilot/bridge/v1/session_pb";
import type { FleetRow } from "./fleet.js";
import { Store } from "./store.js";
import { oneLine } from "./text.js";

/** The message is looked for among this many events before the session's position. Deltas count. */
const searchedEvents = 200n;
const filter = { types: ["assistant.message", "user.message"], agentIds: ["main"], excludeEphemeral: true };
/** Messages contain the arguments of tools and encrypted reasoning: these bounds are 1 MiB of a session. */
const pageBytes = 128 << 10;
const maxPages = 8;
const timeoutMs = 30_000;

/** A browser has six connections to a server without TLS, of which the page's streams use two. */
const maxRequests = 3;
/** A session with a running turn is asked again after this time. */
const runningMs = 5_000;
/** Sessions whose messages are kept: far more than a page shows. */
const maxKept = 1_000;

/** The beginning of the last message of the agent, and of the last prompt; empty if there is none. */
export interface LastOf {
  readonly agent: string;
  readonly user: string;
}

/** The last messages after events; `before` is the result for those before them. */
export function lastOf(events: readonly Event[], before: LastOf = { agent: "", user: "" }): LastOf {
  let { agent, user } = before;
  for (const { event } of events) {
    // A message that only calls tools is empty. Prompts with a source are of the CLI itself.
    const data = event?.data;
    if (data?.case === "assistantMessage") agent = oneLine(data.value.content) || agent;
    if (data?.case === "userMessage" && !data.value.source) user = oneLine(data.value.content) || user;
  }
  return { agent, user };
}

/**
 * The beginning of the agent's last message, or of the last prompt if the agent said nothing. Empty if there is
 * neither, or if the messages have more bytes than the bounds permit.
 */
async function readLast(client: Client, sessionId: string, position: Position, signal: AbortSignal): Promise<string> {
  const { epoch, seq } = position;
  const after = { epoch, seq: seq > searchedEvents ? seq - searchedEvents : 0n };
  let last: LastOf | undefined;
  let pageToken = "";
  for (let page = 0; page < maxPages; page++) {
    const request = { sessionId, after, filter, pageBytes, pageToken };
    const reply = await client.rpc.sessions.listEvents(request, { signal, timeoutMs });
    last = lastOf(reply.events, last);
    pageToken = reply.nextPageToken;
    if (pageToken === "") return last.agent || last.user;
  }
  return "";
}

/** The last messages of the sessions whose rows are on the page. Each is read once for a position of its session. */
export class LastMessages {
  /** The beginning of the last message of each session that has one, by the session's id. */
  readonly messages = new Store<ReadonlyMap<string, string>>(new Map());
  readonly #client: Client;
  readonly #rows = new Map<string, FleetRow>();
  /** The position for which each session was asked last, and when, also if it refused. */
  readonly #asked = new Map<string, { readonly position: string; readonly at: number }>();
  readonly #asking = new Set<string>();
  readonly #over = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(client: Client) {
    this.#client = client;
  }

  /** A row is on the page until the returned function is called. */
  show(row: FleetRow): () => void {
    this.#rows.set(row.id, row);
    this.#work();
    return () => {
      if (this.#rows.get(row.id) === row) this.#rows.delete(row.id);
    };
  }

  stop(): void {
    this.#over.abort();
    clearTimeout(this.#timer);
  }

  /** Asks for the rows whose time has come, within the bound, and waits for the next one. */
  #work(): void {
    clearTimeout(this.#timer);
    const now = Date.now();
    let next = Number.POSITIVE_INFINITY;
    for (const row of this.#rows.values()) {
      // The end of a request continues here.
      if (this.#over.signal.aborted || this.#asking.size >= maxRequests) return;
      const at = this.#dueAt(row);
      if (at <= now) void this.#ask(row, now);
      else next = Math.min(next, at);
    }
    if (next < Number.POSITIVE_INFINITY) this.#timer = setTimeout(() => this.#work(), next - now);
  }

  /** The time at which a session may be asked. */
  #dueAt({ id, position, turnRunning }: FleetRow): number {
    // The server has no events of sessions that it knows only from the CLI's history.
    if (!position?.seq || this.#asking.has(id)) return Number.POSITIVE_INFINITY;
    const asked = this.#asked.get(id);
    if (asked?.position === formatPosition(position)) return Number.POSITIVE_INFINITY;
    return asked && turnRunning ? asked.at + runningMs : 0;
  }

  async #ask({ id, position }: FleetRow, now: number): Promise<void> {
    if (!position) return;
    this.#asking.add(id);
    this.#asked.delete(id); // the last one asked is the last one forgotten
    this.#asked.set(id, { position: formatPosition(position), at: now });
    let message = "";
    try {
      message = await readLast(this.#client, id, position, this.#over.signal);
    } catch {
      // The row shows no message: the position has been asked for.
    }
    this.#asking.delete(id);
    if (this.#over.signal.aborted) return;
    this.#keep(id, message);
    this.#work();
  }

  #keep(id: string, message: string): void {
    const messages = new Map(this.messages.get());
    if (message) messages.set(id, message);
    else messages.delete(id);
    for (const oldest of this.#asked.keys()) {
      if (this.#asked.size <= maxKept) break;
      this.#asked.delete(oldest);
      messages.delete(oldest);
    }
    this.messages.set(messages);
  }
}
