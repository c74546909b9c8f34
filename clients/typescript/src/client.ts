import { create, type DescService, fromBinary } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { Code, createClient as createRpcClient, type Client as RpcClient, type Transport } from "@connectrpc/connect";
import { abortReason, linkedController, randomId } from "./async.js";
import { AttachLink } from "./attach.js";
import { callPolicy, defaultReconnect, type ReconnectPolicy, retry } from "./backoff.js";
import type { ByteSource } from "./attachments.js";
import type { AroundCallback } from "./calls.js";
import { ClosedError, CopilotError, IncompatibleServerError, isReason, toCopilotError, unavailable } from "./errors.js";
import { readCall, silenceMs } from "./events.js";
import { registerFiles } from "./filesystem.js";
import { HandlerTable } from "./handlers.js";
import { type PendingCallback, type PendingChange, PendingList, waiting, type WatchPendingOptions } from "./inbox.js";
import { SessionChange, SessionInfo } from "./info.js";
import { type Logger, warnings } from "./logger.js";
import { ModelRequests } from "./modeltransport.js";
import {
  type CreateOptions,
  createStart,
  declaration,
  defined,
  type ParticipantOptions,
  type SessionOptions,
  resumeStart,
} from "./options.js";
import { Participant, type ParticipantEnvironment } from "./participant.js";
import { Progress } from "./position.js";
import {
  type AttachStartInit,
  type Callback,
  CallbackSchema,
  CallbackService,
  EventService,
  type GetServerInfoResponse,
  type HandlersInit,
  type ImportSessionResponse,
  RuntimeService,
  SessionChange as Change,
  SessionSchema,
  SessionService,
  type ToolDefinition,
  type UsageRow,
} from "./proto.js";
import { Session, type SessionEnvironment, type Services } from "./session.js";
import { toolsByName } from "./tool.js";
import { type SessionSelection, type UsageOptions, usageRequest } from "./usage.js";
import { checkServerVersion } from "./version.js";
import { watchStreams } from "./watch.js";
import { kindOf } from "./words.js";
import { archiveOf, type ImportOptions, importPieces } from "./transfer.js";
import { SubscribeLink } from "./weblink.js";

/** Options of a client. */
export interface ClientOptions {
  /** Name of this program in sessions, for users and logs. */
  name?: string | undefined;
  /** Default: warnings and errors go to `console`. */
  logger?: Logger | undefined;
  /** How broken streams are opened again; false disables reconnection. */
  reconnect?: Partial<ReconnectPolicy> | false | undefined;
  /** Runs around every handler, for example to continue the trace of `call.traceContext`. */
  aroundCallback?: AroundCallback | undefined;
  /**
   * "attach" uses bidirectional streams. "subscribe" uses Subscribe and Resolve, for browsers and proxies without
   * bidirectional streams: tools and handlers then belong to the session.
   */
  participation?: "attach" | "subscribe" | undefined;
}

/** A client of one server. */
export class Client implements AsyncDisposable {
  /** The generated clients of `copilot.bridge.v1`. Their errors are ConnectErrors; `toCopilotError` converts them. */
  readonly rpc: Services;
  readonly #transport: Transport;
  readonly #closeTransport: () => void | Promise<void>;
  readonly #name: string;
  readonly #env: SessionEnvironment;
  readonly #aroundCallback: AroundCallback | undefined;
  readonly #attach: boolean;
  readonly #open = new Set<Session>();
  readonly #over = new AbortController();

  /** Makes a client over a transport. `closeTransport` runs when the client is closed. */
  constructor(
    transport: Transport,
    options: ClientOptions = {},
    closeTransport: () => void | Promise<void> = () => undefined,
  ) {
    this.#transport = transport;
    this.#closeTransport = closeTransport;
    this.#name = options.name ?? "";
    this.#aroundCallback = options.aroundCallback;
    this.#attach = options.participation !== "subscribe";
    this.rpc = {
      sessions: this.use(SessionService),
      events: this.use(EventService),
      callbacks: this.use(CallbackService),
      runtimes: this.use(RuntimeService),
    };
    this.#env = {
      services: this.rpc,
      reconnect:
        options.reconnect === false
          ? { ...defaultReconnect, giveUpAfterMs: 0 }
          : { ...defaultReconnect, ...options.reconnect },
      logger: options.logger ?? warnings,
      canStreamRequests: this.#attach,
    };
  }

  /** The generated client of any service, for example of `copilot.cli.v1`. */
  use<S extends DescService>(service: S): RpcClient<S> {
    return createRpcClient(service, this.#transport);
  }

  /**
   * Checks that the server is a copilot-grpc server of a supported version. Throws an IncompatibleServerError if not.
   */
  async check(options: { signal?: AbortSignal } = {}): Promise<GetServerInfoResponse> {
    try {
      const info = await this.serverInfo(options);
      checkServerVersion(info.version);
      return info;
    } catch (error) {
      if (isForeign(error)) {
        throw new IncompatibleServerError(
          "the target is not a copilot-grpc server, it has no RuntimeService: name another one with the option " +
            "target of connect or COPILOT_GRPC_TARGET, in browsers with the option baseUrl",
        );
      }
      throw error;
    }
  }

  /** The server's version, capabilities and limits. */
  serverInfo(options: { signal?: AbortSignal } = {}): Promise<GetServerInfoResponse> {
    return this.#repeat((signal) => this.rpc.runtimes.getServerInfo({}, { signal }), options.signal);
  }

  /** Creates a session and takes part in it. */
  async createSession(options: CreateOptions = {}): Promise<Session> {
    return this.#join(options, (owned, handlers) => createStart(options, owned, handlers));
  }

  /** Opens a session again, from the CLI's history if necessary, and takes part in it. */
  async resumeSession(id: string, options: SessionOptions = {}): Promise<Session> {
    return this.#join(options, (owned, handlers) => resumeStart(id, options, owned, handlers));
  }

  /**
   * Resumes a session, or creates it with this id if there is none. Programs that do so at the same time get the same
   * session.
   */
  async openSession(id: string, options: SessionOptions = {}): Promise<Session> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.resumeSession(id, numbered(options, attempt, "resume"));
      } catch (error) {
        if (!isReason(error, "SESSION_NOT_FOUND")) throw error;
      }
      try {
        return await this.createSession({ ...numbered(options, attempt, "create"), id });
      } catch (error) {
        // Another program has created it since, and may delete it again.
        if (attempt === openAttempts || !isReason(error, "SESSION_EXISTS")) throw error;
      }
    }
  }

  /** Takes part in a session that is open. Leaves no trace in its history. */
  async joinSession(id: string, options: ParticipantOptions = {}): Promise<Session> {
    return this.#join(options, () => ({ case: "joinSessionId", value: id }));
  }

  /**
   * A handle on a session, without taking part in it: it sends, reads and resolves, but has no tools and no handlers.
   */
  session(id: string): Session {
    return new Session(this.#env, create(SessionSchema, { sessionId: id }));
  }

  async #join(
    options: CreateOptions,
    start: (owned: ToolDefinition[], handlers: HandlersInit | undefined) => NonNullable<AttachStartInit["session"]>,
  ): Promise<Session> {
    if (this.#over.signal.aborted) throw abortReason(this.#over.signal);
    if (!this.#attach && (options.fileSystem || options.modelTransport)) {
      throw new TypeError("fileSystem and modelTransport require bidirectional streams, which browsers do not have");
    }
    const { logger } = this.#env;
    const handlers = new HandlerTable(options, toolsByName(options.tools ?? []), logger);
    if (options.fileSystem) registerFiles(handlers, options.fileSystem);
    const progress = new Progress();
    const participant: Participant = new Participant(
      this.#participantEnvironment(),
      declaration(options, this.#name),
      handlers,
      progress,
      options.maxConcurrentTools ?? 16,
      options.onConnection ?? (() => undefined),
    );
    if (options.modelTransport) {
      const requests = new ModelRequests(options.modelTransport, logger, (part, signal) =>
        participant.modelResponse(part, signal),
      );
      requests.register(handlers);
      participant.modelFailed = (requestId, error) => requests.end(requestId, error);
    }
    const owned = [...handlers.declared(true), ...(this.#attach ? [] : handlers.declared(false))];
    const first = start(owned, this.#attach ? undefined : handlers.announced());
    return this.#opened(participant, handlers, progress, first, options.signal);
  }

  async #opened(
    participant: Participant,
    handlers: HandlerTable,
    progress: Progress,
    start: NonNullable<AttachStartInit["session"]>,
    signal: AbortSignal | undefined,
  ): Promise<Session> {
    const { controller, release } = linkedController(signal, this.#over.signal);
    try {
      const { session: info } = await participant.open(start, controller.signal);
      const begin = start.case === "create" ? undefined : info.position;
      const session = new Session(this.#env, info, { participant, handlers, progress, begin });
      this.#open.add(session);
      void participant.done.then(() => this.#open.delete(session));
      return session;
    } finally {
      release();
    }
  }

  #participantEnvironment(): ParticipantEnvironment {
    const { reconnect, logger } = this.#env;
    return {
      reconnect,
      logger,
      aroundCallback: this.#aroundCallback,
      open: (start, observer, signal) =>
        this.#attach
          ? AttachLink.open(this.rpc.callbacks, start, reconnect.heartbeatMs, observer, signal)
          : SubscribeLink.open(this.rpc, start, reconnect, observer, signal),
      leave: async (sessionId, participantToken, signal) => {
        await this.rpc.callbacks.leave({ sessionId, participantToken }, { signal });
      },
      readCallback: (sessionId, callbackId, signal) => this.#readCallback(sessionId, callbackId, signal),
    };
  }

  async #readCallback(sessionId: string, callbackId: string, signal: AbortSignal): Promise<Callback> {
    const pieces: Uint8Array[] = [];
    const open = (call: AbortSignal) => this.rpc.callbacks.readCallback({ sessionId, callbackId }, { signal: call });
    try {
      for await (const { chunk } of readCall(open, silenceMs(this.#env.reconnect, undefined), signal))
        pieces.push(chunk);
    } catch (error) {
      throw toCopilotError(error);
    }
    const whole = new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
    let at = 0;
    for (const piece of pieces) {
      whole.set(piece, at);
      at += piece.length;
    }
    return fromBinary(CallbackSchema, whole);
  }

  /**
   * The caller's sessions, most recently used first. `includeHistory` adds those of the CLI's history that were never
   * opened through the server, such as those of a person at a terminal with the same home.
   */
  async *listSessions(
    options: SessionSelection & { includeHistory?: boolean; signal?: AbortSignal } = {},
  ): AsyncGenerator<SessionInfo> {
    const { signal, includeHistory = false, ...filter } = options;
    let pageToken = "";
    do {
      const page = await this.#repeat(
        (call) => this.rpc.sessions.listSessions({ filter, includeHistory, pageToken }, { signal: call }),
        signal,
      );
      for (const session of page.sessions) yield new SessionInfo(session);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** One session. */
  async getSession(id: string, options: { signal?: AbortSignal } = {}): Promise<SessionInfo> {
    const reply = await this.#repeat(
      (signal) => this.rpc.sessions.getSession({ sessionId: id }, { signal }),
      options.signal,
    );
    if (!reply.session) throw unavailable("the server returned no session");
    return new SessionInfo(reply.session);
  }

  /** Permanently deletes a session and its history. */
  async deleteSession(id: string, options: { signal?: AbortSignal } = {}): Promise<void> {
    await this.#once((signal) => this.rpc.sessions.deleteSession({ sessionId: id }, { signal }), options.signal);
  }

  /**
   * The archive of a session, in chunks, which `importSession` of any server reads. The session must be at rest. An
   * archive that was cut off ends the iteration with an error.
   */
  async *exportSession(id: string, options: { signal?: AbortSignal } = {}): AsyncGenerator<Uint8Array> {
    const { controller, release } = linkedController(options.signal, this.#over.signal);
    try {
      const stream = this.rpc.sessions.exportSession({ sessionId: id }, { signal: controller.signal });
      yield* archiveOf(stream);
    } catch (error) {
      throw controller.signal.aborted ? abortReason(controller.signal) : toCopilotError(error);
    } finally {
      controller.abort(); // ends the stream if the caller reads no further
      release();
    }
  }

  /**
   * Makes a session of an archive. It is disconnected: `resumeSession` opens it, with the secrets, tools and handlers
   * that archives do not have. Browsers cannot send streams, so this call needs Node.js.
   */
  async importSession(archive: ByteSource, options: ImportOptions = {}): Promise<ImportSessionResponse> {
    const { signal, ...header } = options;
    let broken: { error: unknown } | undefined; // the source, which is not the server's fault
    const pieces = importPieces(archive, header, (error) => {
      broken = { error };
    });
    try {
      return await this.#once((call) => this.rpc.sessions.importSession(pieces, { signal: call }), signal);
    } catch (error) {
      throw broken ? broken.error : error;
    }
  }

  /** The pending callbacks of all sessions of the caller, oldest first: an inbox. */
  async *pending(options: { signal?: AbortSignal } = {}): AsyncGenerator<PendingCallback> {
    let pageToken = "";
    do {
      const page = await this.#repeat(
        (signal) => this.rpc.callbacks.listPending({ pageToken }, { signal }),
        options.signal,
      );
      for (const callback of page.callbacks) yield waiting(callback, this.#resolve(callback));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /**
   * Changes of the caller's sessions, or of those that match: first one CURRENT change for each open session, then
   * changes as they happen. A broken stream is opened again, and begins with the open sessions. The iteration ends when
   * the client is closed.
   */
  async *watchSessions(
    options: SessionSelection & { signal?: AbortSignal } = {},
  ): AsyncGenerator<SessionChange> {
    const { signal, ...filter } = options;
    const open = (call: AbortSignal) => this.rpc.events.watchSessions({ filter }, { signal: call });
    for await (const change of watchStreams({ ...this.#env, over: this.#over.signal }, open, signal)) {
      if (change.change !== Change.HEARTBEAT) yield new SessionChange(change);
    }
  }

  /**
   * The callbacks that wait in all sessions, present and future, as an inbox for people: each once when it waits, and
   * once when it no longer does, also if the stream breaks meanwhile. The iteration ends when the client is closed.
   */
  async *watchPending(options: WatchPendingOptions = {}): AsyncGenerator<PendingChange> {
    const { signal, handle, kinds, labels, owner, graceMs, name = this.#name } = options;
    const grace = graceMs === undefined ? undefined : durationFromMs(graceMs);
    const request = defined({ handle, name, grace, filter: defined({ kinds: kinds?.map(kindOf), labels, owner }) });
    const list = new PendingList((callback) => waiting(callback, this.#resolve(callback)));
    const open = (call: AbortSignal) => {
      list.restart();
      return this.rpc.callbacks.watchPending(request, { signal: call });
    };
    for await (const message of watchStreams({ ...this.#env, over: this.#over.signal }, open, signal)) {
      yield* list.take(message);
    }
  }

  /** Answers a callback. */
  #resolve({ sessionId, callbackId }: Callback): PendingCallback["answer"] {
    return async (answer, { signal } = {}) => {
      const request = { sessionId, callbackId, answer, requestId: randomId() };
      await this.#repeat((call) => this.rpc.callbacks.resolve(request, { signal: call }), signal);
    };
  }

  /** What the caller's open sessions have used of models: a row for each combination of `by`, or one with the sum. */
  async usage(options: UsageOptions = {}): Promise<UsageRow[]> {
    const request = usageRequest(options);
    const reply = await this.#repeat((call) => this.rpc.sessions.getUsage(request, { signal: call }), options.signal);
    return reply.rows;
  }

  /** Leaves all sessions and closes the connection. */
  async close(): Promise<void> {
    if (this.#over.signal.aborted) return;
    await Promise.allSettled([...this.#open].map((session) => session.close()));
    this.#over.abort(new ClosedError("the client was closed by this program"));
    await this.#closeTransport();
  }

  /** Same as close, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #repeat<T>(call: (signal: AbortSignal) => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    return retry(callPolicy(this.#env.reconnect), signal ?? this.#over.signal, () => this.#once(call, signal));
  }

  async #once<T>(call: (signal: AbortSignal) => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    const { controller, release } = linkedController(signal, this.#over.signal);
    try {
      return await call(controller.signal);
    } catch (error) {
      throw controller.signal.aborted ? abortReason(controller.signal) : toCopilotError(error);
    } finally {
      release();
    }
  }
}

/** Times that openSession tries to resume and to create a session. */
const openAttempts = 10;

/** The options of an attempt: a request id belongs to one request. */
function numbered(options: SessionOptions, attempt: number, what: string): SessionOptions {
  return options.requestId === undefined ? options : { ...options, requestId: `${options.requestId}-${what}-${attempt}` };
}

/** Reports whether an error is what a server of another kind answers. */
function isForeign(error: unknown): boolean {
  if (!(error instanceof CopilotError) || error.reason !== undefined) return false;
  return foreignCodes.has(error.code) || (error.code === Code.Internal && /protocol/i.test(error.message));
}

/** Codes of unknown methods, and of replies that are not gRPC. */
const foreignCodes = new Set([Code.Unimplemented, Code.NotFound, Code.Unknown, Code.InvalidArgument]);
