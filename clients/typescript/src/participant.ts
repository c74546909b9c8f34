import { deferred, type Deferred } from "./async.js";
import { Backoff, callPolicy, type ReconnectPolicy, retry } from "./backoff.js";
import { type AroundCallback, PendingCalls } from "./calls.js";
import { WithdrawnError } from "./call.js";
import {
  ClosedError,
  type CopilotError,
  isBroken,
  isReason,
  SessionClosedError,
  toCopilotError,
  unavailable,
} from "./errors.js";
import type { HandlerTable } from "./handlers.js";
import { type Link, LinkDownError, type LinkObserver, type Opened } from "./link.js";
import { errorText, type Logger } from "./logger.js";
import type { Progress } from "./position.js";
import {
  type AttachStartInit,
  type Callback,
  CloseReason,
  type ModelResponseInit,
  StreamStart,
  type SubscribeResponse,
  type TurnOutcome,
} from "./proto.js";

/** A change of a participant's connection. */
export type ConnectionChange =
  /** The stream broke; the library reconnects. */
  | { readonly type: "broken"; readonly error: Error }
  /** The stream is back, with the same participation. */
  | { readonly type: "restored" }
  /**
   * The grace time was over: the participant has joined anew, and callbacks in between got the server's default
   * answers.
   */
  | { readonly type: "participant_expired" }
  /** The session's CLI process ended and was replaced. */
  | { readonly type: "runtime_restarted"; readonly cause: string; readonly turnOutcome: TurnOutcome | undefined }
  /** The participation has ended. The error is a ClosedError after `close`. */
  | { readonly type: "closed"; readonly error: Error };

/** What a participant needs of its client. */
export interface ParticipantEnvironment {
  readonly reconnect: ReconnectPolicy;
  readonly logger: Logger;
  readonly aroundCallback: AroundCallback | undefined;
  /** Opens a link. */
  open(start: AttachStartInit, observer: LinkObserver, signal: AbortSignal): Promise<{ link: Link; opened: Opened }>;
  /** Ends the participation with a token, without a link. */
  leave(sessionId: string, token: string, signal: AbortSignal): Promise<void>;
  readCallback(sessionId: string, callbackId: string, signal: AbortSignal): Promise<Callback>;
}

/** What stays the same in every start frame of a participant. */
export type Declaration = Pick<
  AttachStartInit,
  "name" | "grace" | "commands" | "canvases" | "canvasProvider" | "extensionInfo"
>;

const leaveTimeoutMs = 5_000;

/** This program's part in one session: one link after another, and the handlers that answer callbacks. */
export class Participant {
  readonly #env: ParticipantEnvironment;
  readonly #declaration: Declaration;
  readonly #handlers: HandlerTable;
  readonly #progress: Progress;
  readonly #calls: PendingCalls;
  readonly #onChange: (change: ConnectionChange) => void;
  readonly #over = new AbortController();
  readonly #done = deferred<Error>();
  #link: Link | undefined;
  #linkChange: Deferred<void> = deferred();
  #id = "";
  #token = "";
  #sessionId = "";
  #leaving = false;
  /** Called when the server refuses further parts of a model response. */
  modelFailed: (requestId: string, error: CopilotError) => void = () => undefined;

  constructor(
    env: ParticipantEnvironment,
    declaration: Declaration,
    handlers: HandlerTable,
    progress: Progress,
    maxConcurrentTools: number,
    onChange: (change: ConnectionChange) => void,
  ) {
    this.#env = env;
    this.#declaration = declaration;
    this.#handlers = handlers;
    this.#progress = progress;
    this.#onChange = onChange;
    this.#calls = new PendingCalls({
      handlers,
      maxConcurrentTools,
      logger: env.logger,
      reconnect: env.reconnect,
      aroundCallback: env.aroundCallback,
      over: this.#over.signal,
      link: () => this.#liveLink,
      live: (signal) => this.live(signal),
      readCallback: (callback) => env.readCallback(callback.sessionId, callback.callbackId, this.#over.signal),
    });
  }

  /** Aborts when the participation is over; the reason says why. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  /** Resolves with the reason when the participation is over. */
  get done(): Promise<Error> {
    return this.#done.promise;
  }

  get participantId(): string {
    return this.#id;
  }

  /** Opens the session and keeps the participation up in the background. */
  async open(session: NonNullable<AttachStartInit["session"]>, signal: AbortSignal): Promise<Opened> {
    try {
      return await this.#openFirst(this.#start(session), signal);
    } catch (error) {
      // Handlers may be running since `opening`.
      const reason = toCopilotError(error);
      this.#over.abort(reason);
      this.#calls.end(reason);
      throw reason;
    }
  }

  async #openFirst(start: AttachStartInit, signal: AbortSignal): Promise<Opened> {
    const { link, opened } = await retry(callPolicy(this.#env.reconnect), signal, () =>
      this.#env.open(start, this.#observer, signal),
    );
    this.#adopt(link, opened);
    void this.#run(link);
    return opened;
  }

  #start(session: NonNullable<AttachStartInit["session"]>): AttachStartInit {
    const heartbeat = this.#env.reconnect.heartbeatMs;
    return {
      ...this.#declaration,
      session,
      tools: this.#handlers.declared(false),
      handlers: this.#handlers.announced(),
      start: StreamStart.END,
      filter: { excludeAll: true }, // events have their own streams
      options: {
        heartbeatInterval: { seconds: BigInt(Math.floor(heartbeat / 1000)), nanos: (heartbeat % 1000) * 1_000_000 },
      },
    };
  }

  readonly #observer: LinkObserver = {
    opening: (link, { participantId, participantToken: token, sessionId }) => {
      [this.#id, this.#token, this.#sessionId] = [participantId, token, sessionId];
      this.#setLink(link);
    },
    progress: (detail) => this.#env.logger.debug("waiting for the server", { detail }),
    take: (frame) => this.#take(frame),
    modelFailed: (requestId, error) => this.modelFailed(requestId, error),
  };

  async #run(first: Link): Promise<void> {
    for (let link = first; ;) {
      const reason = await link.serve((frame) => this.#take(frame));
      this.#setLink(undefined);
      if (this.#isOver(reason)) return this.#finish(link, reason);
      this.#env.logger.warn("participant stream broken", { session_id: this.#sessionId, error: reason });
      this.#notify({ type: "broken", error: reason });
      try {
        const old = link;
        link = await this.#reopen(reason);
        old.close(reason); // only now: the participation moves without an interruption
      } catch (error) {
        return this.#finish(link, toCopilotError(error));
      }
    }
  }

  #isOver(reason: Error): boolean {
    if (this.#leaving || this.#over.signal.aborted) return true;
    return !(reason instanceof GoAwayError) && !isBroken(reason);
  }

  /** Opens a link in place of a broken one. */
  async #reopen(reason: Error): Promise<Link> {
    const backoff = new Backoff(this.#env.reconnect);
    let [error, expired] = [reason, false];
    while (await backoff.wait(error, this.#over.signal)) {
      try {
        const { link, opened } = await this.#env.open(this.#startAgain(), this.#observer, this.#redialSignal());
        this.#adopt(link, opened);
        this.#notify(expired ? { type: "participant_expired" } : { type: "restored" });
        return link;
      } catch (thrown) {
        error = toCopilotError(thrown);
        if (this.#token && isReason(error, "PARTICIPANT_NOT_FOUND")) {
          [this.#token, expired] = ["", true];
        } else if (!isBroken(error) && !isTimeout(error)) throw error;
      }
    }
    throw this.#over.signal.aborted ? (this.#over.signal.reason as Error) : error;
  }

  #startAgain(): AttachStartInit {
    const start = this.#start({ case: "joinSessionId", value: this.#sessionId });
    const after = this.#progress.last;
    return { ...start, ...(this.#token ? { participantToken: this.#token } : {}), ...(after ? { after } : {}) };
  }

  /** Bounds an attempt: a server that is silent is tried again. */
  #redialSignal(): AbortSignal {
    return AbortSignal.any([this.#over.signal, AbortSignal.timeout(3 * this.#env.reconnect.heartbeatMs)]);
  }

  #adopt(link: Link, opened: Opened): void {
    this.#progress.note(opened.session.position);
    this.#sessionId = opened.session.sessionId;
    [this.#id, this.#token] = [opened.participantId, opened.token];
    this.#setLink(link);
  }

  #setLink(link: Link | undefined): void {
    this.#link = link;
    this.#linkChange.resolve();
    this.#linkChange = deferred();
  }

  get #liveLink(): Link | undefined {
    return this.#link?.down ? undefined : this.#link;
  }

  /** Waits for a link. Rejects when the signal aborts or the participation is over. */
  async live(signal?: AbortSignal): Promise<Link> {
    for (;;) {
      if (signal?.aborted) throw signal.reason;
      if (this.#over.signal.aborted) throw this.#over.signal.reason;
      const link = this.#liveLink;
      if (link) return link;
      await this.#waitForChange(signal);
    }
  }

  #waitForChange(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const signals = [this.#over.signal, ...(signal ? [signal] : [])];
      const wake = () => {
        for (const each of signals) each.removeEventListener("abort", wake);
        resolve();
      };
      for (const each of signals) each.addEventListener("abort", wake, { once: true });
      void this.#linkChange.promise.then(wake);
    });
  }

  /** Handles a frame. Nothing here waits for a handler. */
  #take(response: SubscribeResponse): Error | undefined {
    this.#progress.note(response.resumeAfter);
    const { frame } = response;
    switch (frame.case) {
      case "started":
      case "gap":
        this.#reconcile(frame.value.pendingCallbacks);
        return undefined;
      case "callbackRequested":
        if (frame.value.callback) this.#request(frame.value.callback, frame.value.offered);
        return undefined;
      case "callbackResolved": {
        const { callbackId, outcome, participantId } = frame.value;
        this.#calls.withdraw(callbackId, new WithdrawnError(outcome, participantId));
        return undefined;
      }
      case "runtimeRestarted":
        this.#notify({ type: "runtime_restarted", cause: frame.value.cause, turnOutcome: frame.value.turnOutcome });
        return undefined;
      case "goAway":
        return new GoAwayError();
      case "closed":
        if (frame.value.reason === CloseReason.DRAINING) return unavailable("the server is draining");
        return new SessionClosedError(this.#sessionId, frame.value);
      default:
        return undefined; // heartbeats, and frames that are newer than this library
    }
  }

  #request(callback: Callback, offered: boolean): void {
    // Without a participation on the server, no callback is offered: the session's handlers are the participant's.
    this.#calls.request(callback, offered || this.#id === "");
  }

  /** Compares the server's pending callbacks with those in hand: new ones start, ended ones are withdrawn. */
  #reconcile(pending: Callback[]): void {
    this.#calls.retain(new Set(pending.map((callback) => callback.callbackId)));
    for (const callback of pending) {
      const to = callback.participantIds;
      this.#request(callback, to.length === 0 || to.includes(this.#id));
    }
  }

  #notify(change: ConnectionChange): void {
    try {
      this.#onChange(change);
    } catch (error) {
      this.#env.logger.error("onConnection failed", { error });
    }
  }

  #finish(link: Link, reason: Error): void {
    const error = this.#leaving ? new ClosedError("the session was closed by this program") : reason;
    link.close(error);
    if (!this.#over.signal.aborted) this.#over.abort(error);
    this.#calls.end(error);
    this.#setLink(undefined);
    this.#done.resolve(error);
    this.#notify({ type: "closed", error });
  }

  /** Replaces the participant's tools. */
  async setTools(signal: AbortSignal | undefined): Promise<void> {
    const link = await this.live(signal);
    try {
      await link.setTools(this.#handlers.declared(false));
    } catch (error) {
      if (!(error instanceof LinkDownError)) throw error;
      await this.live(signal); // the next link starts with the new tools
    }
  }

  /** Sends a part of a response to a model request. If the link breaks, the server ends the response. */
  async modelResponse(part: ModelResponseInit, signal: AbortSignal): Promise<void> {
    (await this.live(signal)).modelResponse(part);
  }

  /** Ends the participation by its token. Otherwise the server would keep the names of its tools for the grace time. */
  async #leaveWithoutLink(deadline: AbortSignal): Promise<void> {
    const token = this.#token;
    if (!token) return; // there never was one, or it has expired
    try {
      const policy = { ...callPolicy(this.#env.reconnect), giveUpAfterMs: leaveTimeoutMs };
      await retry(policy, deadline, () => this.#env.leave(this.#sessionId, token, deadline));
    } catch (error) {
      if (isReason(error, "SESSION_NOT_FOUND")) return;
      this.#env.logger.warn("leave failed", { session_id: this.#sessionId, error: errorText(error) });
    }
  }

  /** Ends the participation, and waits until its stream has ended. */
  async leave(disconnect: boolean): Promise<void> {
    if (this.#over.signal.aborted) return;
    this.#leaving = true;
    const deadline = AbortSignal.timeout(leaveTimeoutMs);
    const link = this.#liveLink;
    if (!link) {
      this.#over.abort(new ClosedError("the session was closed by this program"));
      await Promise.all([this.#done.promise, this.#leaveWithoutLink(deadline)]);
      return;
    }
    const timer = setTimeout(() => link.close(unavailable("the server did not confirm the end")), leaveTimeoutMs);
    try {
      await link.leave(disconnect);
    } catch (error) {
      await this.#leaveWithoutLink(deadline);
      this.#env.logger.warn("leave failed", { session_id: this.#sessionId, error: errorText(error) });
      link.close(unavailable("the server did not confirm the end"));
      if (disconnect) throw toCopilotError(error);
    } finally {
      await this.#done.promise;
      clearTimeout(timer);
    }
  }
}

/** The server will end the stream soon: the participant moves to a new one. */
class GoAwayError extends Error {
  override readonly name: string = "GoAwayError";

  constructor() {
    super("the server asks the participant to reconnect");
  }
}

function isTimeout(error: Error): boolean {
  return error.name === "TimeoutError";
}
