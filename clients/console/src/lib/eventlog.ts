import type { Client, Event, Session, SubscribeResponse } from "@copilot-grpc/client";
import { emptyView, reduce, type View } from "@copilot-grpc/client/view";
import type { Connection } from "./connection.js";
import { Batch, nextFrame, type Schedule } from "./frames.js";
import { Store } from "./store.js";

/** The events of a session as they arrive. */
export interface EventLogState {
  readonly events: readonly Event[];
  readonly caughtUp: boolean;
  readonly title: string;
}

/** All events of a session, for its timeline. Starts once, and ends with `stop`. */
export class EventLog {
  readonly session: Session;
  readonly state = new Store<EventLogState>({ events: [], caughtUp: false, title: "" });
  readonly failure = new Store<Error | undefined>(undefined);
  readonly #connection: Connection;
  readonly #name: string;
  readonly #over = new AbortController();
  readonly #frames: Batch<SubscribeResponse>;
  /** Grows in place: a copy of 50,000 events for each frame would be slow. */
  readonly #events: Event[] = [];

  constructor(client: Client, connection: Connection, id: string, schedule: Schedule = nextFrame) {
    this.session = client.session(id);
    this.#connection = connection;
    this.#name = id;
    this.#frames = new Batch((frames) => this.#take(frames), schedule);
  }

  start(): void {
    void this.#read();
  }

  stop(): void {
    this.#over.abort();
    this.#frames.clear();
    this.#connection.closed(this.#name);
    void this.session.close();
  }

  async #read(): Promise<void> {
    const { signal } = this.#over;
    try {
      for await (const frame of this.session.frames({ from: "beginning", signal })) {
        this.#connection.live(this.#name);
        this.#frames.add(frame);
      }
    } catch (error) {
      if (!signal.aborted) this.failure.set(error as Error);
    }
    this.#connection.closed(this.#name);
  }

  #take(frames: readonly SubscribeResponse[]): void {
    let { caughtUp, title } = this.state.get();
    for (const { frame } of frames) {
      if (frame.case === "events") this.#events.push(...frame.value.events);
      if (frame.case === "caughtUp") caughtUp = true;
      if (frame.case === "started") title = frame.value.session?.name || frame.value.session?.summary || title;
    }
    this.state.set({ events: this.#events, caughtUp, title });
  }
}

/** The session as it was after the first events of a log. */
export function viewAt(events: readonly Event[], length: number): View {
  const frame = { case: "events", value: { events: events.slice(0, length) } };
  return { ...reduce(emptyView(), { sessionId: "", frame } as unknown as SubscribeResponse), caughtUp: true };
}
