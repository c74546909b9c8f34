/** Calls a function before the next frame of the screen. Returns the function that cancels it. */
export type Schedule = (run: () => void) => () => void;

/** Hidden tabs have no frames: there a timer replaces them. */
export const nextFrame: Schedule = (run) => {
  let done = false;
  const once = () => {
    if (done) return;
    done = true;
    cancel();
    run();
  };
  const frame = requestAnimationFrame(once);
  const timer = setTimeout(once, 250);
  const cancel = () => {
    done = true;
    cancelAnimationFrame(frame);
    clearTimeout(timer);
  };
  return cancel;
};

/** Collects items and hands them on together, once for each frame. */
export class Batch<T> {
  readonly #take: (items: T[]) => void;
  readonly #schedule: Schedule;
  #items: T[] = [];
  #cancel: (() => void) | undefined;

  constructor(take: (items: T[]) => void, schedule: Schedule = nextFrame) {
    this.#take = take;
    this.#schedule = schedule;
  }

  add(item: T): void {
    this.#items.push(item);
    this.#cancel ??= this.#schedule(() => this.flush());
  }

  /** Hands on what was collected. */
  flush(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    const items = this.#items;
    this.#items = [];
    if (items.length > 0) this.#take(items);
  }

  /** Forgets what was collected. */
  clear(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#items = [];
  }
}
