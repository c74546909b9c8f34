import { toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { Slots } from "./async.js";
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
  /** The link that answers are sent on, unless there is none at present. */
  link(): Link | undefined;
  /** Waits for a link. Rejects when the signal or the participation ends. */
  live(signal: AbortSignal): Promise<Link>;
  /** Reads a callback whose request did not fit into a frame. */
  readCallback(callback: Callback): Promise<Callback>;
}

/** A callback in hand. */
class Entry {
  callback: Callback;
  /** Of the attempts to send the answer; made when the first one fails. */
  backoff: Backoff | undefined;
  #ended = false;
  #reason: Error | undefined;
  #controller: AbortController | undefined;
  #onEnd: (() => void) | undefined;

  constructor(callback: Callback) {
    this.callback = callback;
  }

  /** True once the answer has arrived, or is no longer needed. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Aborts at the end. It is made for those who ask: most handlers do not, and a signal takes longer than a call. */
  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#ended) this.#controller.abort(this.#reason ?? new WithdrawnError());
    }
    return this.#controller.signal;
  }

  /** Calls a function at the end, in place of the one before. */
  onEnd(run: () => void): void {
    this.#onEnd = run;
  }

  /** Ends the callback. The reason of the signal is a WithdrawnError if none is given. */
  end(reason?: Error): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#reason = reason;
    this.#onEnd?.();
    this.#controller?.abort(reason ?? new WithdrawnError());
  }
}

/**
 * The pending callbacks that a participant answers. Each is in hand until the server has the answer, or the callback
 * has ended. The answer of a handler that ran is kept for further links.
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
    const entry = new Entry(callback);
    if (this.#entries.size >= maxCalls) {
      this.#env.logger.warn("too many callbacks at once", { callback_id: callback.callbackId });
      this.#send(entry, errorAnswer("too many callbacks at once"));
      return;
    }
    this.#entries.set(callback.callbackId, entry);
    if (responder) this.#run(entry, responder);
    else void this.#runWhole(entry, offered);
  }

  /** Ends a callback whose answer is no longer needed. */
  withdraw(callbackId: string, reason: WithdrawnError): void {
    const entry = this.#entries.get(callbackId);
    if (entry) this.#drop(entry, reason);
  }

  /** Ends all callbacks that are not among those with the ids. */
  retain(callbackIds: Set<string>): void {
    for (const [id, entry] of this.#entries) {
      if (!callbackIds.has(id)) this.#drop(entry);
    }
  }

  /** Ends all callbacks. */
  end(reason: Error): void {
    for (const entry of [...this.#entries.values()]) this.#drop(entry, reason);
  }

  #drop(entry: Entry, reason?: Error): void {
    const { callbackId } = entry.callback;
    if (this.#entries.get(callbackId) === entry) this.#entries.delete(callbackId);
    entry.end(reason);
  }

  async #runWhole(entry: Entry, offered: boolean): Promise<void> {
    try {
      entry.callback = await this.#env.readCallback(entry.callback);
    } catch (error) {
      if (!offered || isReason(error, "CALLBACK_RESOLVED")) return this.#drop(entry);
      this.#env.logger.warn("callback not read", { callback_id: entry.callback.callbackId, error });
      return this.#send(entry, errorAnswer(errorText(error)));
    }
    const responder = this.#env.handlers.responder(entry.callback, offered);
    if (responder) this.#run(entry, responder);
    else this.#drop(entry);
  }

  /** Computes the answer once there is a slot, and sends it. */
  #run(entry: Entry, responder: Responder): void {
    const slots = entry.callback.request.case === "toolCall" ? this.#tools : this.#others;
    slots.take(() => {
      if (entry.ended) return slots.release();
      let held = true;
      // A handler that ignores its signal does not hold the slot.
      const release = () => {
        if (held) slots.release();
        held = false;
      };
      entry.onEnd(release);
      void this.#compute(entry, responder).then((answer) => {
        release();
        this.#send(entry, answer);
      });
    });
  }

  /** The answer. Does not reject. */
  async #compute(entry: Entry, responder: Responder): Promise<Answer> {
    const { aroundCallback } = this.#env;
    try {
      const call = newCall(entry.callback, () => entry.signal);
      return checkSize(await (aroundCallback ? aroundCallback(call, () => responder(call)) : responder(call)));
    } catch (error) {
      // Of aroundCallback, or of a value that cannot be encoded.
      this.#env.logger.warn("answer not sent", { callback_id: entry.callback.callbackId, error });
      return errorAnswer(errorText(error));
    }
  }

  /** Sends an answer until the server has it: over a new link if one breaks, and again if the runtime was away. */
  #send(entry: Entry, answer: Answer): void {
    if (entry.ended || this.#env.over.aborted) return this.#drop(entry);
    const link = this.#env.link();
    if (!link) return void this.#sendLater(entry, answer);
    link.answer(entry.callback.callbackId, answer, (error) => {
      if (error === undefined || entry.ended) this.#drop(entry);
      else void this.#sendAgain(entry, answer, error);
    });
  }

  async #sendLater(entry: Entry, answer: Answer): Promise<void> {
    try {
      await this.#env.live(entry.signal);
    } catch {
      return this.#drop(entry); // the callback or the participation has ended
    }
    this.#send(entry, answer);
  }

  async #sendAgain(entry: Entry, answer: Answer, thrown: Error): Promise<void> {
    const backoff = (entry.backoff ??= new Backoff(this.#env.reconnect));
    if (thrown instanceof LinkDownError) {
      backoff.reset();
      return this.#sendLater(entry, answer);
    }
    const error = toCopilotError(thrown);
    if (isReason(error, "CALLBACK_RESOLVED", "CALLBACK_NOT_FOUND")) return this.#drop(entry);
    this.#env.logger.warn("answer refused", { callback_id: entry.callback.callbackId, error });
    const code = error instanceof CopilotError ? error.code : undefined;
    if (code === Code.InvalidArgument && answer.answer.case !== "error") answer = errorAnswer(error.message);
    else if (!isBroken(error) || !(await backoff.wait(error, entry.signal))) return this.#drop(entry);
    this.#send(entry, answer);
  }
}

/** Replaces an answer that the server would not accept. Throws if a value cannot be encoded. */
function checkSize(answer: Answer): Answer {
  if (isShortText(answer)) return answer;
  const { length } = toBinary(AnswerSchema, answer);
  return length <= maxAnswerBytes ? answer : errorAnswer(`the answer has ${length} bytes, more than ${maxAnswerBytes}`);
}

/** Reports whether an answer is a text that is small enough in any encoding, so that it need not be encoded for it. */
function isShortText({ answer }: Answer): boolean {
  if (answer.case !== "tool" || answer.value.outcome.case !== "text") return false;
  const text: unknown = answer.value.outcome.value; // a tool may return a whole answer, with values of any type
  return typeof text === "string" && 3 * text.length < maxAnswerBytes - 1024;
}
