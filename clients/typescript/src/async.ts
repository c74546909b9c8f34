/** A promise with its functions. */
export interface Deferred<T> {
  readonly promise: Promise<T>;
  resolve(value: T): void;
  reject(reason: unknown): void;
}

export function deferred<T>(): Deferred<T> {
  let resolve!: (value: T) => void;
  let reject!: (reason: unknown) => void;
  const promise = new Promise<T>((res, rej) => {
    resolve = res;
    reject = rej;
  });
  promise.catch(() => undefined); // a rejection without a listener is not an error of the program
  return { promise, resolve, reject };
}

/** The sending half of a stream: an async iterable, for one reader, of the messages that are sent. */
export class Outbox<T> implements AsyncIterable<T>, AsyncIterator<T> {
  readonly #messages: T[] = [];
  #closed = false;
  #waiting: ((result: IteratorResult<T>) => void) | undefined;

  /** Queues a message. A closed outbox drops it. */
  send(message: T): void {
    if (this.#closed) return;
    if (this.#waiting) this.#wake({ done: false, value: message });
    else this.#messages.push(message);
  }

  /** Ends the iteration after the queued messages. */
  close(): void {
    this.#closed = true;
    this.#wake({ done: true, value: undefined });
  }

  #wake(result: IteratorResult<T>): void {
    const wake = this.#waiting;
    this.#waiting = undefined;
    wake?.(result);
  }

  [Symbol.asyncIterator](): AsyncIterator<T> {
    return this;
  }

  /** The next message. */
  next(): Promise<IteratorResult<T>> {
    const value = this.#messages.shift();
    if (value !== undefined) return Promise.resolve({ done: false, value });
    if (this.#closed) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve) => (this.#waiting = resolve));
  }

  /** The reader has left the iteration. */
  return(): Promise<IteratorResult<T>> {
    this.#messages.length = 0;
    this.close();
    return Promise.resolve({ done: true, value: undefined });
  }

  /** The reader has failed. */
  async throw(reason: unknown): Promise<IteratorResult<T>> {
    await this.return();
    throw reason;
  }
}

/** Limits how many functions run at once; the others wait in order. */
export class Slots {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  /** Calls a function as soon as a slot is free, at once if one is; the function has to see to its release. */
  take(run: () => void): void {
    if (this.#free === 0) return void this.#waiting.push(run);
    this.#free--;
    run();
  }

  /** Gives the slot to the function that waits for the longest time. */
  release(): void {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#free++;
  }
}

/** Rejects with the signal's reason when it aborts, if that is before the promise settles. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise;
  return new Promise<T>((resolve, reject) => {
    const onAbort = () => reject(abortReason(signal));
    if (signal.aborted) return onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

/** The reason of an aborted signal as an Error. */
export function abortReason(signal: AbortSignal): Error {
  return signal.reason instanceof Error ? signal.reason : new Error(String(signal.reason ?? "aborted"));
}

/** A controller that also aborts with the given signals. `release` removes its listeners from them. */
export function linkedController(...signals: (AbortSignal | undefined)[]): {
  controller: AbortController;
  release: () => void;
} {
  const controller = new AbortController();
  const release = () => {
    for (const [signal, listener] of listeners) signal.removeEventListener("abort", listener);
  };
  const listeners = signals
    .filter((signal) => signal !== undefined)
    .map((signal): [AbortSignal, () => void] => [signal, () => controller.abort(signal.reason)]);
  for (const [signal, listener] of listeners) {
    if (signal.aborted) listener();
    else signal.addEventListener("abort", listener, { once: true });
  }
  return { controller, release };
}

/** Random text for request ids. */
export function randomId(): string {
  return crypto.randomUUID();
}

/** Calls a function at intervals. In Node.js the timer alone does not keep the process running. */
export function every(ms: number, run: () => void): ReturnType<typeof setInterval> {
  const timer: ReturnType<typeof setInterval> | number = setInterval(run, ms);
  if (typeof timer === "object") timer.unref();
  return timer;
}
