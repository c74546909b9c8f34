import type { Client, Session, SessionInfo, SubscribeResponse } from "@copilot-grpc/client";
import { emptyView, reduce, type View } from "@copilot-grpc/client/view";
import type { Connection } from "./connection.js";
import { nextFrame, type Schedule } from "./frames.js";
import { Store } from "./store.js";

/** Time that one frame of the screen may spend on frames of the stream, in milliseconds. */
const budgetMs = 12;
/** While the replay lasts, the page is updated this often: each update draws a page that is replaced at once. */
const replayMs = 200;

/** Types that change nothing on the page: they are about a third of all events. */
const hidden = ["model.*", "assistant.streaming_delta", "session.background_tasks_changed", "pending_messages.modified"];

/** A session as it streams. It can pause, and continues where it was; it ends with `stop`. */
export class Conversation {
  readonly id: string;
  readonly session: Session;
  readonly view = new Store<View>(emptyView());
  /** The error that ended the stream for good. */
  readonly failure = new Store<Error | undefined>(undefined);
  readonly #connection: Connection;
  readonly #schedule: Schedule;
  readonly #clock: () => number;
  #over: AbortController | undefined;
  #queue: SubscribeResponse[] = [];
  #at = 0;
  #current = emptyView();
  #shownAt = 0;
  #cancel: (() => void) | undefined;

  constructor(
    client: Client,
    connection: Connection,
    id: string,
    schedule: Schedule = nextFrame,
    clock: () => number = () => performance.now(),
  ) {
    this.id = id;
    this.session = client.session(id);
    this.#connection = connection;
    this.#schedule = schedule;
    this.#clock = clock;
  }

  /** Reads on, after the last position that the page has. */
  start(): void {
    if (this.#over) return;
    this.#over = new AbortController();
    void this.#read(this.#over.signal);
  }

  pause(): void {
    this.#over?.abort();
    this.#over = undefined;
    // What is not shown yet is read again.
    this.#cancel?.();
    this.#cancel = undefined;
    [this.#queue, this.#at] = [[], 0];
    this.#connection.closed(this.id);
  }

  /** A call returned a newer state of the session than the stream has. */
  note(session: SessionInfo): void {
    this.#current = { ...this.#current, session };
    this.view.set({ ...this.view.get(), session });
  }

  stop(): void {
    this.pause();
    void this.session.close();
  }

  async #read(signal: AbortSignal): Promise<void> {
    const from = this.#current.position ?? "beginning";
    try {
      const filter = { excludeTypes: hidden };
      for await (const frame of this.session.frames({ from, callbacks: true, filter, signal })) {
        if (signal.aborted) break;
        this.#connection.live(this.id);
        this.#queue.push(frame);
        this.#cancel ??= this.#schedule(() => this.#work());
      }
    } catch (error) {
      if (!signal.aborted) this.failure.set(error as Error);
    }
    if (!signal.aborted) this.#connection.closed(this.id);
  }

  /** Takes frames of the stream for a part of a frame of the screen. */
  #work(): void {
    this.#cancel = undefined;
    const begin = this.#clock();
    while (this.#at < this.#queue.length && this.#clock() - begin < budgetMs) {
      this.#current = reduce(this.#current, this.#queue[this.#at++]!);
    }
    if (this.#at < this.#queue.length) this.#cancel = this.#schedule(() => this.#work());
    else [this.#queue, this.#at] = [[], 0];
    const now = this.#clock();
    if (!this.#current.caughtUp && this.#at > 0 && now - this.#shownAt < replayMs) return;
    this.#shownAt = now;
    this.view.set(this.#current);
  }
}
