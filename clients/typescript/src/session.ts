import type { CallOptions, Client as RpcClient } from "@connectrpc/connect";
import { abortReason, linkedController, randomId } from "./async.js";
import { chunksOf, StreamAttachment } from "./attachments.js";
import { callPolicy, type ReconnectPolicy, retry } from "./backoff.js";
import { ClosedError, toCopilotError } from "./errors.js";
import { type EventOrGap, type EventsOptions, eventsOf, Gap, readFrames } from "./events.js";
import type { HandlerTable } from "./handlers.js";
import { type PendingCallback, waiting } from "./inbox.js";
import { SessionInfo } from "./info.js";
import type { Logger } from "./logger.js";
import { defined, durationMs } from "./options.js";
import type { Participant } from "./participant.js";
import { Progress } from "./position.js";
import { promptOf, type RunOptions, type SendOptions, type WaitOptions } from "./prompt.js";
import {
  type AnswerInit,
  CallbackService,
  EventService,
  type Position,
  RuntimeService,
  type SessionMessage,
  SessionService,
  type SubscribeResponse,
} from "./proto.js";
import { type Tool, toolsByName } from "./tool.js";
import { newOutcome, type Outcome, Turn } from "./turn.js";

/** The generated clients of `copilot.bridge.v1`. */
export interface Services {
  readonly sessions: RpcClient<typeof SessionService>;
  readonly events: RpcClient<typeof EventService>;
  readonly callbacks: RpcClient<typeof CallbackService>;
  readonly runtimes: RpcClient<typeof RuntimeService>;
}

/** What a session needs of its client. */
export interface SessionEnvironment {
  readonly services: Services;
  readonly reconnect: ReconnectPolicy;
  readonly logger: Logger;
  /** The transport can stream requests. */
  readonly canStreamRequests: boolean;
}

/** A conversation with an agent, and this program's part in it. */
export class Session implements AsyncDisposable {
  /** The session's id. */
  readonly id: string;
  /** The session when this program opened it; only the id for a handle. */
  readonly info: SessionInfo;
  readonly #env: SessionEnvironment;
  readonly #participant: Participant | undefined;
  readonly #handlers: HandlerTable | undefined;
  readonly #progress: Progress;
  readonly #begin: Position | undefined;
  readonly #over = new AbortController();
  #settingTools: Promise<unknown> = Promise.resolve();

  /** @internal */
  constructor(
    env: SessionEnvironment,
    info: SessionMessage,
    part?: { participant: Participant; handlers: HandlerTable; progress: Progress; begin: Position | undefined },
  ) {
    this.#env = env;
    this.id = info.sessionId;
    this.info = new SessionInfo(info);
    this.#participant = part?.participant;
    this.#handlers = part?.handlers;
    this.#progress = part?.progress ?? new Progress();
    this.#begin = part?.begin;
  }

  /** The latest position that this program has seen. */
  get position(): Position | undefined {
    return this.#progress.last;
  }

  /** The server's id of this participant; empty for a handle. */
  get participantId(): string {
    return this.#participant?.participantId ?? "";
  }

  /**
   * Resolves with the reason when the participation is over: a ClosedError after `close`, a SessionClosedError if the
   * server ended it, a CopilotError if it could not be restored. Never resolves for a handle.
   */
  get closed(): Promise<Error> {
    return this.#participant?.done ?? new Promise(() => undefined);
  }

  /**
   * Sends a prompt and returns when the CLI has accepted it. A repeated call after a broken connection sends it once.
   */
  async send(text: string, options: SendOptions = {}): Promise<{ messageId: string; position: Position | undefined }> {
    const { sessions } = this.#env.services;
    const requestId = options.requestId ?? randomId();
    const streams = (options.attachments ?? []).some((attachment) => attachment instanceof StreamAttachment);
    if (streams && this.#env.canStreamRequests) return this.#sendStream(text, requestId, options);
    const request = { requestId, sessionId: this.id, prompt: await promptOf(text, options) };
    const reply = await this.#repeat((call) => sessions.send(request, call), options.signal);
    this.#progress.note(reply.position);
    return { messageId: reply.messageId, position: reply.position };
  }

  /** Sends a prompt with the bytes of its streams in chunks. A stream is read once, so the call is not repeated. */
  async #sendStream(text: string, requestId: string, options: SendOptions) {
    const { attachments = [], ...rest } = options;
    const sessionId = this.id;
    const prompt = await promptOf(text, {
      ...rest,
      attachments: attachments.map((attachment) =>
        attachment instanceof StreamAttachment
          ? {
              variant: {
                case: "blob",
                value: defined({ mimeType: attachment.mimeType, displayName: attachment.displayName }),
              },
            }
          : attachment,
      ),
    });
    async function* pieces() {
      yield { piece: { case: "request" as const, value: { requestId, sessionId, prompt } } };
      for (const [attachment, each] of attachments.entries()) {
        if (!(each instanceof StreamAttachment)) continue;
        for await (const data of chunksOf(each.source))
          yield { piece: { case: "chunk" as const, value: { attachment, data } } };
      }
    }
    const reply = await this.#call((call) => this.#env.services.sessions.sendStream(pieces(), call), options.signal);
    this.#progress.note(reply.position);
    return { messageId: reply.messageId, position: reply.position };
  }

  /**
   * Sends a prompt and waits until its turn has ended. A failed turn is an outcome and no exception. The signal also
   * aborts the turn, unless `detach` is set.
   */
  async sendAndWait(text: string, options: WaitOptions = {}): Promise<Outcome> {
    const { timeoutMs, idleTimeoutMs, signal, detach } = options;
    const request = {
      requestId: options.requestId ?? randomId(),
      sessionId: this.id,
      prompt: await promptOf(text, options),
      ...(timeoutMs === undefined ? {} : { timeout: durationMs(timeoutMs) }),
      ...(idleTimeoutMs === undefined ? {} : { idleTimeout: durationMs(idleTimeoutMs) }),
    };
    try {
      // The wait may be long, and so may an interruption.
      const reply = await this.#repeat(
        (call) => this.#env.services.sessions.sendAndWait(request, call),
        signal,
        this.#env.reconnect,
      );
      this.#progress.note(reply.outcome?.endPosition);
      return newOutcome(reply.messageId, reply.outcome);
    } catch (error) {
      if (signal?.aborted && !detach) await this.#abortAfterSignal();
      throw error;
    }
  }

  /** Prepares to send a prompt and to stream its turn. The prompt is sent when the turn is first read. */
  run(text: string, options: RunOptions = {}): Turn {
    const signal = options.signal ? AbortSignal.any([options.signal, this.#over.signal]) : this.#over.signal;
    return new Turn({
      sessions: this.#env.services.sessions,
      sessionId: this.id,
      reconnect: this.#env.reconnect,
      logger: this.#env.logger,
      progress: this.#progress,
      requestId: options.requestId ?? randomId(),
      prompt: () => promptOf(text, options),
      filter: options.filter,
      stream: options.stream,
      signal,
      onAbort: async () => {
        if (options.signal?.aborted && !options.detach) await this.#abortAfterSignal();
      },
    });
  }

  /** Aborts the turn for a caller whose signal has aborted: a failure is logged. */
  async #abortAfterSignal(): Promise<void> {
    try {
      await this.abort();
    } catch (error) {
      this.#env.logger.warn("abort failed", { session_id: this.id, error });
    }
  }

  /** Stops the running turn and removes queued messages. Returns whether a turn was running. */
  async abort(options: { signal?: AbortSignal } = {}): Promise<boolean> {
    const reply = await this.#call(
      (call) => this.#env.services.sessions.abort({ sessionId: this.id }, call),
      options.signal,
    );
    return reply.turnWasRunning;
  }

  /** The session's current state. */
  async get(options: { signal?: AbortSignal } = {}): Promise<SessionInfo> {
    const reply = await this.#repeat(
      (call) => this.#env.services.sessions.getSession({ sessionId: this.id }, call),
      options.signal,
    );
    return reply.session ? new SessionInfo(reply.session) : this.info;
  }

  /** Changes the model from the next turn on. Returns the model in use, if the CLI reports it. */
  async setModel(modelId: string, options: { reasoningEffort?: string; signal?: AbortSignal } = {}): Promise<string> {
    const request = { sessionId: this.id, modelId, reasoningEffort: options.reasoningEffort ?? "" };
    const reply = await this.#call((call) => this.#env.services.sessions.setModel(request, call), options.signal);
    return reply.modelId;
  }

  /**
   * Yields the session's events: past events, then live events. A broken stream continues after the last event. The
   * iteration ends when the session is disconnected, deleted or closed. Each call opens a stream; a slow loop delays
   * nothing else.
   */
  events(options: EventsOptions = {}): AsyncGenerator<EventOrGap> {
    return eventsOf(this.frames(options), options.ephemeralGaps);
  }

  /** Like `events`, with everything that the stream reports: the end of the replay, heartbeats, restarts, batches. */
  frames(options: EventsOptions = {}): AsyncGenerator<SubscribeResponse> {
    const env = {
      events: this.#env.services.events,
      sessionId: this.id,
      reconnect: this.#env.reconnect,
      logger: this.#env.logger,
      progress: this.#progress,
      over: this.#over.signal,
    };
    return readFrames(env, { ...options, from: options.from ?? this.#begin ?? "beginning" });
  }

  /** Yields the stored events, and ends after the last one. */
  async *history(options: EventsOptions = {}): AsyncGenerator<EventOrGap> {
    const { from, types, filter, stream, signal } = options;
    let pageToken = "";
    do {
      const request = {
        sessionId: this.id,
        pageToken,
        ...(typeof from === "object" ? { after: from } : {}),
        ...(types || filter ? { filter: { ...filter, ...(types ? { types } : {}) } } : {}),
        ...defined({ fidelity: stream?.fidelity, originalJson: stream?.originalJson }),
      };
      const page = await this.#repeat((call) => this.#env.services.sessions.listEvents(request, call), signal);
      if (page.gap) yield new Gap(page.gap);
      yield* page.events;
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Reads the whole JSON of an event, for an event that is `truncated`. */
  async readEvent(position: Position, options: { signal?: AbortSignal } = {}): Promise<string> {
    const decoder = new TextDecoder();
    let text = "";
    await this.#call(async (call) => {
      for await (const { jsonChunk } of this.#env.services.sessions.readEvent({ sessionId: this.id, position }, call)) {
        text += decoder.decode(jsonChunk, { stream: true });
      }
    }, options.signal);
    return text + decoder.decode();
  }

  /** Sets and removes labels, and leaves the others as they are. Returns the session's labels. */
  async updateLabels(
    set: Record<string, string>,
    options: { remove?: string[]; signal?: AbortSignal } = {},
  ): Promise<Record<string, string>> {
    const request = { sessionId: this.id, set, remove: options.remove ?? [] };
    const reply = await this.#call(
      (call) => this.#env.services.sessions.updateLabels(request, call),
      options.signal,
    );
    return reply.session?.labels ?? {};
  }

  /** The callbacks that wait for an answer, oldest first. */
  async pending(options: { signal?: AbortSignal } = {}): Promise<PendingCallback[]> {
    const reply = await this.#repeat(
      (call) => this.#env.services.callbacks.listPending({ sessionId: this.id }, call),
      options.signal,
    );
    return reply.callbacks.map((callback) =>
      waiting(callback, (answer, each) => this.resolve(callback.callbackId, answer, each)),
    );
  }

  /** Answers any callback of the session by its id. `answerPermission`, `answerTool` and `answerRaw` make answers. */
  async resolve(callbackId: string, answer: AnswerInit, options: { signal?: AbortSignal } = {}): Promise<void> {
    const request = { sessionId: this.id, callbackId, answer, requestId: randomId() };
    await this.#repeat((call) => this.#env.services.callbacks.resolve(request, call), options.signal);
  }

  /** Replaces the tools of this participant. Calls that are running continue. */
  async setTools(tools: readonly Tool[], options: { signal?: AbortSignal } = {}): Promise<void> {
    const [participant, handlers] = [this.#participant, this.#handlers];
    if (!participant || !handlers) throw new TypeError("only a participant has tools: join the session");
    const next = toolsByName(tools);
    const change = this.#settingTools.then(async () => {
      const before = handlers.tools;
      handlers.tools = next; // before the server knows them, so that their calls find them
      try {
        await participant.setTools(options.signal);
      } catch (error) {
        handlers.tools = before;
        throw toCopilotError(error);
      }
    });
    this.#settingTools = change.catch(() => undefined);
    await change;
  }

  /** Leaves the session: its tools and handlers are gone. The session continues, unless its lifetime says otherwise. */
  async close(): Promise<void> {
    this.#over.abort(new ClosedError("the session was closed by this program"));
    await this.#participant?.leave(false);
  }

  /**
   * Leaves the session and ends its use: without other participants its turn is aborted, and the session is not found
   * until it is resumed. Its history stays.
   */
  async disconnect(): Promise<void> {
    if (this.#participant && !this.#participant.over.aborted) {
      await this.#participant.live();
      await this.#participant.leave(true);
    } else {
      await this.#call(
        (call) => this.#env.services.sessions.disconnectSession({ sessionId: this.id }, call),
        undefined,
      );
    }
    await this.close();
  }

  /** Permanently deletes the session and its history. */
  async delete(): Promise<void> {
    await this.#call((call) => this.#env.services.sessions.deleteSession({ sessionId: this.id }, call), undefined);
    await this.close();
  }

  /** Same as close, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Repeats an idempotent call after broken connections. */
  #repeat<T>(
    call: (options: CallOptions) => Promise<T>,
    signal: AbortSignal | undefined,
    policy?: ReconnectPolicy,
  ): Promise<T> {
    const until = signal ?? this.#over.signal;
    return retry(policy ?? callPolicy(this.#env.reconnect), until, () => this.#call(call, signal));
  }

  /** Makes a call and records the position of its reply. */
  async #call<T>(call: (options: CallOptions) => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    const linked = linkedController(signal);
    try {
      return await call({
        signal: linked.controller.signal,
        onTrailer: (trailer) => this.#progress.noteTrailer(trailer),
      });
    } catch (error) {
      throw signal?.aborted ? abortReason(signal) : toCopilotError(error);
    } finally {
      linked.release();
    }
  }
}
