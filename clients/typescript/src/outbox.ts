/**
 * The sending half of a bidirectional stream. The stubs take what is sent as an async
 * iterable; this is one to put messages into as they come up. It holds what the
 * connection has not taken yet: answers and commands, which are few.
 */
export class Outbox<T> implements AsyncIterable<T> {
  #waiting: T[] = [];
  #closed = false;
  #wake: () => void = () => {};

  /** Sends a message, unless the stream is closed. */
  send(message: T): void {
    if (!this.#closed) this.#waiting.push(message);
    this.#wake();
  }

  /** Half-closes the stream once everything is sent. */
  close(): void {
    this.#closed = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    for (;;) {
      while (this.#waiting.length > 0) yield this.#waiting.shift()!;
      if (this.#closed) return;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }
}
