import type { Client } from "@connectrpc/connect";
import { abortable, every, linkedController, randomId } from "./async.js";
import { callPolicy, type ReconnectPolicy, retry } from "./backoff.js";
import { ClosedError, toCopilotError, unavailable } from "./errors.js";
import type { Link, LinkObserver, Opened, Settled, TakeFrame } from "./link.js";
import {
  type Answer,
  type AttachStartInit,
  type CallbackService,
  type EventService,
  type SessionMessage,
  type SessionService,
  StreamStart,
  type SubscribeResponse,
} from "./proto.js";

/** The services that a {@link SubscribeLink} uses. */
export interface SubscribeServices {
  readonly sessions: Client<typeof SessionService>;
  readonly events: Client<typeof EventService>;
  readonly callbacks: Client<typeof CallbackService>;
}

/**
 * A Subscribe stream with calls of Resolve, for transports without bidirectional streams. The server knows no
 * participant: tools and handlers belong to the session, and the caller answers every pending callback that it handles.
 */
export class SubscribeLink implements Link {
  readonly #services: SubscribeServices;
  readonly #sessionId: string;
  readonly #policy: ReconnectPolicy;
  readonly #call = new AbortController();
  readonly #frames: AsyncIterator<SubscribeResponse>;
  readonly #timer: ReturnType<typeof setInterval>;
  #heardAt = Date.now();
  #down = false;

  /** Creates, resumes or finds the session, and subscribes to it. The signal bounds only the opening. */
  static async open(
    services: SubscribeServices,
    start: AttachStartInit,
    policy: ReconnectPolicy,
    observer: LinkObserver,
    signal: AbortSignal,
  ): Promise<{ link: SubscribeLink; opened: Opened }> {
    try {
      const session = await openSession(services.sessions, start, signal);
      const link = new SubscribeLink(services, session.sessionId, start, policy);
      const onAbort = () => link.close(signal.reason as Error);
      signal.addEventListener("abort", onAbort, { once: true });
      try {
        await link.#subscribed(observer.take);
        return { link, opened: { participantId: "", token: "", session, resumed: false } };
      } finally {
        signal.removeEventListener("abort", onAbort);
      }
    } catch (error) {
      throw signal.aborted ? signal.reason : toCopilotError(error);
    }
  }

  private constructor(services: SubscribeServices, sessionId: string, start: AttachStartInit, policy: ReconnectPolicy) {
    this.#services = services;
    this.#sessionId = sessionId;
    this.#policy = policy;
    const cursor = {
      sessionId,
      start: StreamStart.END,
      filter: start.filter ?? {},
      ...(start.after ? { after: start.after } : {}),
    };
    const request = { sessions: [cursor], callbacks: true, options: start.options ?? {} };
    this.#frames = services.events.subscribe(request, { signal: this.#call.signal })[Symbol.asyncIterator]();
    this.#timer = every(policy.heartbeatMs, () => {
      if (Date.now() - this.#heardAt > 3 * policy.heartbeatMs) this.close(unavailable("the server is silent"));
    });
  }

  get down(): boolean {
    return this.#down;
  }

  async #next(): Promise<SubscribeResponse | undefined> {
    const { done, value } = await this.#frames.next();
    this.#heardAt = Date.now();
    return done ? undefined : value;
  }

  async #subscribed(take: TakeFrame): Promise<void> {
    try {
      const first = await this.#next();
      if (!first) throw unavailable("the server ended the stream before it started");
      const end = take(first);
      if (end) throw end;
    } catch (error) {
      this.close(toCopilotError(error));
      throw error;
    }
  }

  async serve(take: TakeFrame): Promise<Error> {
    let reason: Error | undefined;
    try {
      while (!reason) {
        const next = await this.#next();
        reason = next ? take(next) : unavailable("the server ended the stream");
      }
    } catch (error) {
      reason = this.#call.signal.aborted ? (this.#call.signal.reason as Error) : toCopilotError(error);
    }
    this.#end();
    return reason;
  }

  answer(callbackId: string, answer: Answer, settled: Settled): void {
    if (answer.answer.case === "abstain") return settled(); // other callers may answer until the deadline
    const request = { sessionId: this.#sessionId, callbackId, answer, requestId: randomId() };
    const { signal } = this.#call;
    retry(callPolicy(this.#policy), signal, () => this.#services.callbacks.resolve(request)).then(
      () => settled(),
      (error: unknown) => settled(toCopilotError(error)),
    );
  }

  setTools(): Promise<void> {
    return Promise.reject(
      new Error("without a bidirectional stream the tools belong to the session: resume it with other tools"),
    );
  }

  modelResponse(): void {
    // Unreachable: the participant refuses model transports and file systems for such links.
  }

  async leave(disconnect: boolean): Promise<void> {
    try {
      if (disconnect)
        await abortable(this.#services.sessions.disconnectSession({ sessionId: this.#sessionId }), this.#call.signal);
    } catch (error) {
      // The stream may report the end of the session before the call does.
      if (!(error instanceof ClosedError)) throw error;
    } finally {
      this.close(unavailable("left"));
    }
  }

  close(reason: Error): void {
    this.#end();
    this.#call.abort(reason);
  }

  #end(): void {
    this.#down = true;
    clearInterval(this.#timer);
  }
}

/** Opens the session of a start frame with unary calls. */
async function openSession(
  sessions: Client<typeof SessionService>,
  start: AttachStartInit,
  signal: AbortSignal,
): Promise<SessionMessage> {
  const linked = linkedController(signal);
  const options = { signal: linked.controller.signal };
  try {
    const open = start.session;
    const reply =
      open?.case === "create"
        ? await sessions.createSession(open.value, options)
        : open?.case === "resume"
          ? await sessions.resumeSession(open.value, options)
          : await sessions.getSession({ sessionId: open?.value ?? "" }, options);
    if (!reply.session) throw unavailable("the server opened no session");
    return reply.session;
  } finally {
    linked.release();
  }
}
