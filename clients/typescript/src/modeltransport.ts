import type { CopilotError } from "./errors.js";
import type { HandlerTable, RequestOf } from "./handlers.js";
import { errorText, type Logger } from "./logger.js";
import type { ModelResponseInit } from "./proto.js";

/** Makes a model request: `fetch`, or a function like it. The request's signal aborts when the CLI cancels. */
export type ModelTransport = (request: Request) => Promise<Response>;

/** Size of the parts of a response. */
const partBytes = 256 << 10;

interface OpenRequest {
  readonly body: ReadableStreamDefaultController<Uint8Array> | undefined;
  readonly controller: AbortController;
}

/** The model requests that a participant makes for its session. */
export class ModelRequests {
  readonly #transport: ModelTransport;
  readonly #logger: Logger;
  readonly #send: (part: ModelResponseInit, signal: AbortSignal) => Promise<void>;
  readonly #open = new Map<string, OpenRequest>();

  constructor(
    transport: ModelTransport,
    logger: Logger,
    send: (part: ModelResponseInit, signal: AbortSignal) => Promise<void>,
  ) {
    this.#transport = transport;
    this.#logger = logger;
    this.#send = send;
  }

  /** Adds the handlers of model requests. */
  register(handlers: HandlerTable): void {
    handlers.add("modelRequestStart", (request) => {
      this.#start(request);
      return {};
    });
    handlers.add("modelRequestChunk", (chunk) => {
      this.#feed(chunk);
      return {};
    });
  }

  #start(start: RequestOf<"modelRequestStart">): void {
    const controller = new AbortController();
    let body: ReadableStreamDefaultController<Uint8Array> | undefined;
    const hasBody = start.method !== "GET" && start.method !== "HEAD";
    const stream = hasBody ? new ReadableStream<Uint8Array>({ start: (made) => void (body = made) }) : null;
    this.#open.set(start.requestId, { body, controller });
    const headers = new Headers();
    for (const [name, list] of Object.entries(start.headers)) {
      for (const value of list.items) headers.append(name, value);
    }
    // `duplex` is required for streams, and missing in the types.
    const init = { method: start.method, headers, body: stream, signal: controller.signal, duplex: "half" };
    void this.#answer(start.requestId, new Request(start.url, init), controller.signal);
  }

  #feed(chunk: RequestOf<"modelRequestChunk">): void {
    const open = this.#open.get(chunk.requestId);
    if (!open) return; // the response has ended
    if (chunk.cancel)
      return this.end(chunk.requestId, new Error(chunk.cancelReason || "the CLI cancelled the model request"));
    const data = chunk.binary
      ? Uint8Array.from(atob(chunk.data), (char) => char.charCodeAt(0))
      : new TextEncoder().encode(chunk.data);
    try {
      if (data.length > 0) open.body?.enqueue(data);
      if (chunk.end) open.body?.close();
    } catch {
      // The transport has cancelled the body: it answered without reading all of it.
    }
  }

  /** Ends a request. */
  end(requestId: string, reason: Error | CopilotError): void {
    this.#open.get(requestId)?.controller.abort(reason);
    this.#open.delete(requestId);
  }

  async #answer(requestId: string, request: Request, signal: AbortSignal): Promise<void> {
    try {
      await this.#relay(requestId, await this.#transport(request), signal);
    } catch (error) {
      if (!signal.aborted) {
        this.#logger.warn("model transport failed", { request_id: requestId, error });
        const failed: ModelResponseInit = {
          requestId,
          part: { case: "chunk", value: { error: { message: errorText(error) } } },
        };
        await this.#send(failed, signal).catch(() => undefined); // the participation is over
      }
    } finally {
      this.#open.delete(requestId);
    }
  }

  async #relay(requestId: string, response: Response, signal: AbortSignal): Promise<void> {
    const headers: Record<string, { items: string[] }> = {};
    response.headers.forEach((value, name) => (headers[name] = { items: [value] }));
    const head = { status: response.status, statusText: response.statusText, headers };
    await this.#send({ requestId, part: { case: "head", value: head } }, signal);
    const reader = response.body?.getReader();
    for (let next = await reader?.read(); next && !next.done; next = await reader?.read()) {
      for (let at = 0; at < next.value.length; at += partBytes) {
        const value = next.value.subarray(at, at + partBytes);
        await this.#send({ requestId, part: { case: "chunk", value: { data: { case: "binary", value } } } }, signal);
      }
    }
    await this.#send({ requestId, part: { case: "chunk", value: { end: true } } }, signal);
  }
}
