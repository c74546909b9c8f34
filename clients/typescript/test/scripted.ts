// A server in this process whose streams the tests write frame by frame.
import { after } from "node:test";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, createRouterTransport, type HandlerContext, type ServiceImpl } from "@connectrpc/connect";
import {
  CallbackService,
  Client,
  type ClientOptions,
  EventService,
  RuntimeService,
  SessionService,
} from "@copilot-grpc/client";
import { CallbackKind, CallbackSchema } from "@copilot-grpc/client/gen/copilot/bridge/v1/callback_pb";
import {
  type AttachRequest,
  AttachResponseSchema,
  type AttachStart,
} from "@copilot-grpc/client/gen/copilot/bridge/v1/callback_service_pb";
import { SubscribeResponseSchema } from "@copilot-grpc/client/gen/copilot/bridge/v1/event_service_pb";
import { RunResponseSchema } from "@copilot-grpc/client/gen/copilot/bridge/v1/session_service_pb";

type Frame<Schema extends typeof AttachResponseSchema | typeof SubscribeResponseSchema | typeof RunResponseSchema> =
  MessageInitShape<Schema>;
export type CallbackInit = MessageInitShape<typeof CallbackSchema>;
export type AttachFrame = NonNullable<Frame<typeof AttachResponseSchema>["frame"]>;
export type SubscribeFrame = Frame<typeof SubscribeResponseSchema>;
export type RequestCase = NonNullable<AttachRequest["frame"]["case"]>;
export type RequestValue<C extends RequestCase> = Extract<AttachRequest["frame"], { case: C }>["value"];

// Without sockets nothing else keeps the process running while a test waits.
const running = setInterval(() => undefined, 60_000);
after(() => clearInterval(running));

/** Values that one side puts in and the other side awaits. */
export class Queue<T> {
  readonly #values: T[] = [];
  readonly #waiting: ((value: T) => void)[] = [];

  put(value: T): void {
    const next = this.#waiting.shift();
    if (next) next(value);
    else this.#values.push(value);
  }

  take(): Promise<T> {
    if (this.#values.length > 0) return Promise.resolve(this.#values.shift() as T);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  get size(): number {
    return this.#values.length;
  }
}

/** A server stream of the test. */
export class Stream<Request, Response> {
  readonly #out = new Queue<Response | Error | undefined>();
  readonly request: Request;
  /** Resolves when the client has ended the call. */
  readonly aborted: Promise<void>;

  constructor(request: Request, context: HandlerContext) {
    this.request = request;
    this.aborted = new Promise((resolve) => context.signal.addEventListener("abort", () => resolve()));
  }

  send(response: Response): void {
    this.#out.put(response);
  }

  /** Ends the stream: with OK, or as a connection that broke. */
  end(error?: Error): void {
    this.#out.put(error);
  }

  cut(code = Code.Canceled): void {
    this.end(new ConnectError("the stream was reset", code));
  }

  async *responses(): AsyncGenerator<Response> {
    for (let next = await this.#out.take(); next !== undefined; next = await this.#out.take()) {
      if (next instanceof Error) throw next;
      yield next;
    }
  }
}

/** An Attach stream of the test. */
export class AttachStream extends Stream<AttachStart, Frame<typeof AttachResponseSchema>> {
  readonly #requests = new Queue<AttachRequest["frame"]>();
  /** The answers so far, by callback, heartbeats excluded. */
  readonly answers: string[] = [];

  read(frame: AttachRequest["frame"]): void {
    if (frame.case === "heartbeat") return;
    if (frame.case === "answer") this.answers.push(frame.value.callbackId);
    this.#requests.put(frame);
  }

  /** The next frame of the client, which must be of this case. */
  async next<C extends RequestCase>(name: C): Promise<RequestValue<C>> {
    const frame = await this.#requests.take();
    if (frame.case !== name) throw new Error(`the client sent ${frame.case}, not ${name}`);
    return frame.value as RequestValue<C>;
  }

  frame(frame: AttachFrame): void {
    this.send({ frame });
  }

  stream(value: SubscribeFrame): void {
    this.frame({ case: "stream", value });
  }

  /** Sends `started`, and the first frame of the session with its pending callbacks. */
  start(options: { resumed?: boolean; pending?: CallbackInit[] } = {}): void {
    const session = { sessionId: "s1", position: { epoch: 1n, seq: 5n } };
    const { resumed = false, pending = [] } = options;
    this.frame({ case: "started", value: { participantId: "p1", participantToken: "secret", session, resumed } });
    this.stream({ sessionId: "s1", frame: { case: "started", value: { pendingCallbacks: pending } } });
  }

  callback(callback: CallbackInit, offered = true): void {
    this.stream({ sessionId: "s1", frame: { case: "callbackRequested", value: { callback, offered } } });
  }

  done(callbackId: string): void {
    this.frame({ case: "done", value: { subject: { case: "callbackId", value: callbackId } } });
  }
}

/** A server whose streams the test controls, and whose unary calls it implements. */
export class ScriptedServer {
  readonly attaches = new Queue<AttachStream>();
  readonly subscribes = new Queue<Stream<MessageRequest<"subscribe">, SubscribeFrame>>();
  readonly runs = new Queue<Stream<MessageRequest<"run">, Frame<typeof RunResponseSchema>>>();
  readonly client: Client;

  constructor(
    calls: {
      sessions?: Partial<ServiceImpl<typeof SessionService>>;
      callbacks?: Partial<ServiceImpl<typeof CallbackService>>;
      runtimes?: Partial<ServiceImpl<typeof RuntimeService>>;
    } = {},
    options: ClientOptions = {},
  ) {
    const { attaches, subscribes, runs } = this;
    const transport = createRouterTransport(({ service }) => {
      service(CallbackService, {
        ...calls.callbacks,
        async *attach(requests, context) {
          const iterator = requests[Symbol.asyncIterator]();
          const first = await iterator.next();
          if (first.done || first.value.frame.case !== "start") throw new Error("the first frame is not start");
          const stream = new AttachStream(first.value.frame.value, context);
          void readAll(iterator, stream);
          attaches.put(stream);
          yield* stream.responses();
        },
      });
      service(EventService, {
        async *subscribe(request, context) {
          const stream = new Stream<typeof request, SubscribeFrame>(request, context);
          subscribes.put(stream);
          yield* stream.responses();
        },
      });
      service(SessionService, {
        ...calls.sessions,
        async *run(request, context) {
          const stream = new Stream<typeof request, Frame<typeof RunResponseSchema>>(request, context);
          runs.put(stream);
          yield* stream.responses();
        },
      });
      service(RuntimeService, { ...calls.runtimes });
    });
    this.client = new Client(transport, { reconnect: { minBackoffMs: 1, maxBackoffMs: 5 }, ...options });
  }
}

type MessageRequest<M extends "subscribe" | "run"> = M extends "subscribe"
  ? Parameters<ServiceImpl<typeof EventService>["subscribe"]>[0]
  : Parameters<ServiceImpl<typeof SessionService>["run"]>[0];

/** Reads the client's frames until the call ends. */
async function readAll(iterator: AsyncIterator<AttachRequest>, stream: AttachStream): Promise<void> {
  try {
    for (let next = await iterator.next(); !next.done; next = await iterator.next()) stream.read(next.value.frame);
  } catch {
    // The call has ended.
  }
}

export function toolCall(callbackId: string, toolName = "tool", args: unknown = {}): CallbackInit {
  const value = { toolName, toolCallId: `call-${callbackId}`, argumentsJson: JSON.stringify(args) };
  const participantIds = ["p1"];
  return {
    callbackId,
    sessionId: "s1",
    participantIds,
    kind: CallbackKind.TOOL_CALL,
    request: { case: "toolCall", value },
  };
}

export function permission(callbackId: string, command = "ls"): CallbackInit {
  const variant = { case: "shell" as const, value: { fullCommandText: command } };
  return {
    callbackId,
    sessionId: "s1",
    participantIds: ["p1"],
    kind: CallbackKind.PERMISSION,
    request: { case: "permission", value: { permissionRequest: { variant } } },
  };
}

/** An error of the server: with the reason in the trailer. */
export function refusal(code: Code, reason: string, message = "refused"): ConnectError {
  return new ConnectError(message, code, { "copilot-reason": reason });
}

/** A frame with one event. */
export function eventFrame(seq: number, type = "assistant.message"): SubscribeFrame {
  const position = { epoch: 1n, seq: BigInt(seq) };
  const events = [{ position, event: { eventType: type, id: `e${seq}` } }];
  return { sessionId: "s1", resumeAfter: position, frame: { case: "events", value: { events } } };
}

/** A frame that this version does not know. */
export function unknownFrame(): SubscribeFrame {
  const frame = create(SubscribeResponseSchema, { sessionId: "s1" });
  frame.$unknown = [{ no: 900, wireType: 2, data: new Uint8Array([2, 8, 1]) }];
  return frame;
}
