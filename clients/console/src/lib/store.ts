/** A value that changes over time. It follows the store contract of Svelte: components read it as `$store`. */
export interface Readable<T> {
  get(): T;
  /** Calls `run` with the value, now and after each change. Returns the function that ends this. */
  subscribe(run: (value: T) => void): () => void;
}

/** A {@link Readable} that its owner sets. */
export class Store<T> implements Readable<T> {
  #value: T;
  readonly #runs = new Set<(value: T) => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get(): T {
    return this.#value;
  }

  set(value: T): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const run of [...this.#runs]) run(value);
  }

  update(change: (value: T) => T): void {
    this.set(change(this.#value));
  }

  subscribe(run: (value: T) => void): () => void {
    // A function of its own: the same `run` may subscribe twice.
    const own = (value: T) => run(value);
    this.#runs.add(own);
    own(this.#value);
    return () => this.#runs.delete(own);
  }
}
