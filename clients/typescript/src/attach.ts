import { type MessageInitShape } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import { every, Outbox, randomId } from "./async.js";
import { fromFailure, toCopilotError, unavailable } from "./errors.js";
import { type Link, LinkDownError, type LinkObserver, type Opened, type Settled, type TakeFrame } from "./link.js";
import {
  type Answer,
  type AttachResponse,
  type AttachRequestSchema,
  type AttachStartInit,
  type CallbackService,
  type ModelResponseInit,
  type ToolDefinition,
} from "./proto.js";

type Request = MessageInitShape<typeof AttachRequestSchema>;

/** An Attach stream. */
export class AttachLink implements Link {
  readonly #outbox = new Outbox<Request>();
  readonly #call = new AbortController();
  readonly #frames: AsyncIterator<AttachResponse>;
  readonly #observer: LinkObserver;
  readonly #answers = new Map<string, Settled>();
  readonly #commands = new Map<string, Settled>();
  readonly #timer: ReturnType<typeof setInterval>;
  #heardAt = Date.now();
  #down = false;

  /** Opens a stream and waits until the participation has started. The signal bounds only the opening. */
  static async open(
    client: Client<typeof CallbackService>,
    start: AttachStartInit,
    heartbeatMs: number,
    observer: LinkObserver,
    signal: AbortSignal,
  ): Promise<{ link: AttachLink; opened: Opened }> {
    const link = new AttachLink(client, heartbeatMs, observer);
    const onAbort = () => link.close(signal.reason as Error);
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      if (signal.aborted) throw signal.reason;
      link.#send({ case: "start", value: start });
      return { link, opened: await link.#started() };
    } catch (error) {
      link.close(toCopilotError(error));
      throw signal.aborted ? signal.reason : toCopilotError(error);
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  private constructor(client: Client<typeof CallbackService>, heartbeatMs: number, observer: LinkObserver) {
    this.#observer = observer;
    this.#frames = client.attach(this.#outbox, { signal: this.#call.signal })[Symbol.asyncIterator]();
    this.#timer = every(heartbeatMs, () => this.#beat(heartbeatMs));
  }

  get down(): boolean {
    return this.#down;
  }

  #beat(intervalMs: number): void {
    if (Date.now() - this.#heardAt > 3 * intervalMs) this.close(unavailable("the server is silent"));
    else this.#send({ case: "heartbeat", value: {} });
  }

  #send(frame: NonNullable<Request["frame"]>): void {
    this.#outbox.send({ frame });
  }

  async #next(): Promise<AttachResponse | undefined> {
    const { done, value } = await this.#frames.next();
    this.#heardAt = Date.now();
    return done ? undefined : value;
  }

  async #started(): Promise<Opened> {
    for (;;) {
      const response = await this.#next();
      if (!response) throw unavailable("the server ended the stream before the participation started");
      const { frame } = response;
      switch (frame.case) {
        case "started": {
          const { participantId, participantToken: token, session, resumed } = frame.value;
          if (!session) throw unavailable("the server opened no session");
          return { participantId, token, session, resumed };
        }
        case "opening":
          this.#observer.opening(this, frame.value);
          break;
        case "progress":
          this.#observer.progress(frame.value.detail);
          break;
        default: {
          const end = this.#take(response, this.#observer.take);
          if (end) throw end;
        }
      }
    }
  }

  async serve(take: TakeFrame): Promise<Error> {
    let reason: Error | undefined;
    try {
      while (!reason) {
        const { done, value } = await this.#frames.next();
        this.#heardAt = Date.now();
        reason = done ? unavailable("the server ended the stream") : this.#take(value, take);
      }
    } catch (error) {
      reason = this.#call.signal.aborted ? (this.#call.signal.reason as Error) : toCopilotError(error);
    }
    this.#end();
    return reason;
  }

  #take({ frame }: AttachResponse, take: TakeFrame): Error | undefined {
    switch (frame.case) {
      case "stream":
        return take(frame.value);
      case "done":
        this.#reply(frame.value.subject);
        return undefined;
      case "failed": {
        const { subject } = frame.value;
        const error = fromFailure(frame.value.failure);
        if (subject.case === "modelRequestId") this.#observer.modelFailed(subject.value, error);
        else this.#reply(subject, error);
        return undefined;
      }
      default:
        return undefined; // a frame that is newer than this library
    }
  }

  /** Takes the server's reply to an answer or a command. */
  #reply(subject: { case: string | undefined; value?: string | undefined }, error?: Error): void {
    const waiting = subject.case === "callbackId" ? this.#answers : this.#commands;
    const settled = waiting.get(subject.value ?? "");
    waiting.delete(subject.value ?? "");
    settled?.(error);
  }

  answer(callbackId: string, answer: Answer, settled: Settled): void {
    if (this.#down) return settled(new LinkDownError());
    this.#send({ case: "answer", value: { callbackId, answer } });
    if (answer.answer.case === "abstain") settled(); // not acknowledged
    else this.#answers.set(callbackId, settled);
  }

  setTools(tools: ToolDefinition[]): Promise<void> {
    if (this.#down) return Promise.reject(new LinkDownError());
    const commandId = randomId();
    return new Promise((resolve, reject) => {
      this.#commands.set(commandId, (error) => (error ? reject(error) : resolve()));
      this.#send({ case: "command", value: { commandId, command: { case: "setTools", value: { tools } } } });
    });
  }

  modelResponse(part: ModelResponseInit): void {
    this.#send({ case: "modelResponse", value: part });
  }

  leave(disconnect: boolean): Promise<void> {
    this.#send({ case: "leave", value: { disconnect } });
    this.#outbox.close();
    return Promise.resolve();
  }

  close(reason: Error): void {
    this.#end();
    this.#call.abort(reason);
  }

  #end(): void {
    if (this.#down) return;
    this.#down = true;
    clearInterval(this.#timer);
    this.#outbox.close();
    const lost = new LinkDownError();
    const waiting = [...this.#answers.values(), ...this.#commands.values()];
    this.#answers.clear();
    this.#commands.clear();
    for (const settled of waiting) settled(lost);
  }
}
