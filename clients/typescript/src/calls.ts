import { toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { abortable, Slots } from "./async.js";
import { Backoff, type ReconnectPolicy } from "./backoff.js";
import { type Call, newCall, WithdrawnError } from "./call.js";
import { CopilotError, isBroken, isReason, toCopilotError } from "./errors.js";
import { errorAnswer, type HandlerTable, type Responder } from "./handlers.js";
import { type Link, LinkDownError } from "./link.js";
import { errorText, type Logger } from "./logger.js";
import { type Answer, AnswerSchema, type Callback } from "./proto.js";

/** Limit of the callbacks that a participant has in hand. The server itself has no more pending in a session. */
const maxCalls = 1024;
/** Limit of the handlers, other than tools, that run at once. */
const maxConcurrentHandlers = 64;
/**
 * Limit of an answer in bytes: by default a server accepts messages of 16 MiB, and a longer message ends the stream.
 */
const maxAnswerBytes = 15 << 20;

/** Runs around each handler, for example to continue the trace of the turn. */
export type AroundCallback = <T>(call: Call, run: () => Promise<T>) => Promise<T>;

/** What {@link PendingCalls} needs of its participant. */
export interface CallEnvironment {
  readonly handlers: HandlerTable;
  readonly logger: Logger;
  readonly reconnect: ReconnectPolicy;
  readonly maxConcurrentTools: number;
  readonly aroundCallback: AroundCallback | undefined;
  /** Aborts when the participation is over. */
  readonly over: AbortSignal;
  /** Waits for a link. Rejects when the signal or the participation ends. */
  live(signal: AbortSignal): Promise<Link>;
  /** Reads a callback whose request did not fit into a frame. */
  readCallback(callback: Callback): Promise<Callback>;
}

interface Entry {
  readonly callback: Callback;
  readonly controller: AbortController;
}

/**
 * The pending callbacks that a participant answers. Each runs in its own promise until the server has the answer, or
 * the callback has ended. The answer of a handler that ran is kept for further links.
 */
export class PendingCalls {
  readonly #env: CallEnvironment;
  readonly #entries = new Map<string, Entry>();
  readonly #tools: Slots;
  readonly #others = new Slots(maxConcurrentHandlers);

  constructor(env: CallEnvironment) {
    this.#env = env;
    this.#tools = new Slots(env.maxConcurrentTools);
  }

  /** Starts to answer a callback. A callback that is in hand already continues. */
  request(callback: Callback, offered: boolean): void {
    if (this.#entries.has(callback.callbackId)) return;
    const whole = callback.totalBytes > 0n;
    const responder = whole ? undefined : this.#env.handlers.responder(callback, offered);
    if (!responder && !whole) return;
    const entry: Entry = { callback, controller: new AbortController() };
    if (this.#entries.size >= maxCalls) {
      this.#env.logger.warn("too many callbacks at once", { callback_id: callback.callbackId });
      void this.#deliver(entry, errorAnswer("too many callbacks at once"));
      return;
    }
    this.#entries.set(callback.callbackId, entry);
    void (responder ? this.#run(entry, responder) : this.#runWhole(entry, offered));
  }

  /** Ends a callback whose answer is no longer needed. */
  withdraw(callbackId: string, reason: WithdrawnError): void {
    const entry = this.#entries.get(callbackId);
    if (entry) this.#drop(entry, reason);
  }

  /** Ends all callbacks that are not among those with the ids. */
  retain(callbackIds: Set<string>): void {
    for (const [id, entry] of this.#entries) {
      if (!callbackIds.has(id)) this.#drop(entry, new WithdrawnError());
    }
  }

  /** Ends all callbacks. */
  end(reason: Error): void {
    for (const entry of [...this.#entries.values()]) this.#drop(entry, reason);
  }

  #drop(entry: Entry, reason: Error): void {
    const { callbackId } = entry.callback;
    if (this.#entries.get(callbackId) === entry) this.#entries.delete(callbackId);
    entry.controller.abort(reason);
  }

  async #runWhole(entry: Entry, offered: boolean): Promise<void> {
    try {
      const callback = await this.#env.readCallback(entry.callback);
      const responder = this.#env.handlers.responder(callback, offered);
      if (responder) await this.#run({ ...entry, callback }, responder);
    } catch (error) {
      if (offered && !isReason(error, "CALLBACK_RESOLVED")) {
        this.#env.logger.warn("callback not read", { callback_id: entry.callback.callbackId, error });
        await this.#deliver(entry, errorAnswer(errorText(error)));
      }
    } finally {
      this.#drop(entry, new WithdrawnError());
    }
  }

  /** Computes the answer once there is a slot, and delivers it. */
  async #run(entry: Entry, responder: Responder): Promise<void> {
    const { signal } = entry.controller;
    const slots = entry.callback.request.case === "toolCall" ? this.#tools : this.#others;
    await slots.take();
    let answer: Answer | undefined;
    try {
      // A handler that ignores its signal does not hold the slot.
      if (!signal.aborted) answer = await abortable(this.#compute(newCall(entry.callback, signal), responder), signal);
    } catch {
      // The callback has ended.
    }
    slots.release();
    if (answer) await this.#deliver(entry, answer);
    this.#drop(entry, new WithdrawnError());
  }

  async #compute(call: Call, responder: Responder): Promise<Answer> {
    const { aroundCallback } = this.#env;
    try {
      return checkSize(await (aroundCallback ? aroundCallback(call, () => responder(call)) : responder(call)));
    } catch (error) {
      return errorAnswer(errorText(error)); // of aroundCallback, or a value that cannot be encoded
    }
  }

  /** Sends an answer until the server has it: over a new link if one breaks, and again if the runtime was away. */
  async #deliver(entry: Entry, answer: Answer): Promise<void> {
    const { signal } = entry.controller;
    const { callbackId } = entry.callback;
    const backoff = new Backoff(this.#env.reconnect);
    while (!signal.aborted && !this.#env.over.aborted) {
      try {
        const link = await this.#env.live(signal);
        await abortable(link.answer(callbackId, answer), signal);
        return;
      } catch (thrown) {
        if (signal.aborted || this.#env.over.aborted) return;
        if (thrown instanceof LinkDownError) {
          backoff.reset();
          continue;
        }
        const error = toCopilotError(thrown);
        if (isReason(error, "CALLBACK_RESOLVED", "CALLBACK_NOT_FOUND")) return;
        this.#env.logger.warn("answer refused", { callback_id: callbackId, error });
        const code = error instanceof CopilotError ? error.code : undefined;
        if (code === Code.InvalidArgument && answer.answer.case !== "error") answer = errorAnswer(error.message);
        else if (!isBroken(error) || !(await backoff.wait(error, signal))) return;
      }
    }
  }
}

/** Replaces an answer that the server would not accept. Throws if a value cannot be encoded. */
function checkSize(answer: Answer): Answer {
  const { length } = toBinary(AnswerSchema, answer);
  return length <= maxAnswerBytes ? answer : errorAnswer(`the answer has ${length} bytes, more than ${maxAnswerBytes}`);
}
