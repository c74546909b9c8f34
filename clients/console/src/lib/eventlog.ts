import type { Client, Event, Session, SubscribeResponse } from "@copilot-grpc/client";
import { emptyView, reduce, type View } from "@copilot-grpc/client/view";
import type { Connection } from "./connection.js";
import { Batch, nextFrame, type Schedule } from "./frames.js";
import { Turns } from "./spans.js";
import { Store } from "./store.js";

/** The page is updated at most this often: each update makes the list of all events anew. */
const updateMs = 100;

/** The events of a session as they arrive. The events and the turns are the same objects in each state, and grow. */
export interface EventLogState {
  readonly events: readonly Event[];
  readonly turns: Turns;
  readonly caughtUp: boolean;
  readonly title: string;
}

/** All events of a session, for its timeline. Starts once, and ends with `stop`. */
export class EventLog {
  readonly session: Session;
  readonly state: Store<EventLogState>;
  readonly failure = new Store<Error | undefined>(undefined);
  readonly #connection: Connection;
  readonly #name: string;
  readonly #over = new AbortController();
  readonly #frames: Batch<SubscribeResponse>;
  /** Grows in place: a copy of 50,000 events for each frame would be slow. */
  readonly #events: Event[] = [];
  readonly #turns = new Turns();
  readonly #schedule: Schedule;
  readonly #clock: () => number;
  #caughtUp = false;
  #title = "";
  #shownAt = -updateMs;
  #cancel: (() => void) | undefined;

  constructor(
    client: Client,
    connection: Connection,
    id: string,
    schedule: Schedule = nextFrame,
    clock: () => number = () => performance.now(),
  ) {
    this.session = client.session(id);
    this.#connection = connection;
    this.#name = id;
    this.#schedule = schedule;
    this.#clock = clock;
    this.#frames = new Batch((frames) => this.#take(frames), schedule);
    this.state = new Store<EventLogState>({ events: this.#events, turns: this.#turns, caughtUp: false, title: "" });
  }

  start(): void {
    void this.#read();
  }

  stop(): void {
    this.#over.abort();
    this.#frames.clear();
    this.#cancel?.();
    this.#connection.closed(this.#name);
    void this.session.close();
  }

  async #read(): Promise<void> {
    const { signal } = this.#over;
    let drawnAt = this.#clock();
    try {
      for await (const frame of this.session.frames({ from: "beginning", signal })) {
        this.#connection.live(this.#name);
        this.#frames.add(frame);
        // A replay arrives faster than the browser draws, and would keep it from drawing.
        if (this.#clock() - drawnAt < updateMs) continue;
        await new Promise<void>((resolve) => this.#schedule(resolve));
        drawnAt = this.#clock();
      }
    } catch (error) {
      if (!signal.aborted) this.failure.set(error as Error);
    }
    this.#connection.closed(this.#name);
  }

  #take(frames: readonly SubscribeResponse[]): void {
    for (const { frame } of frames) {
      if (frame.case === "events") {
        this.#events.push(...frame.value.events);
        this.#turns.add(frame.value.events);
      }
      if (frame.case === "caughtUp") this.#caughtUp = true;
      if (frame.case === "started") this.#title = frame.value.session?.name || frame.value.session?.summary || this.#title;
    }
    this.#cancel ??= this.#schedule(() => this.#show());
  }

  /** Shows what has arrived, not before the time for it. */
  #show(): void {
    this.#cancel = undefined;
    const now = this.#clock();
    if (now - this.#shownAt < updateMs) {
      this.#cancel = this.#schedule(() => this.#show());
      return;
    }
    this.#shownAt = now;
    this.state.set({ events: this.#events, turns: this.#turns, caughtUp: this.#caughtUp, title: this.#title });
  }
}

/** The session as it was after the first events of a log. */
export function viewAt(events: readonly Event[], length: number): View {
  const frame = { case: "events", value: { events: events.slice(0, length) } };
  return { ...reduce(emptyView(), { sessionId: "", frame } as unknown as SubscribeResponse), caughtUp: true };
}
