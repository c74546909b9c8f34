/** Key strokes and what they do: "j", "Escape", "?" or a sequence such as "g f". */
export type Bindings = Readonly<Record<string, (event: KeyboardEvent) => void>>;

/** Time in which the second key of a sequence must follow. */
const sequenceMs = 1200;

/** Finds the bindings of key strokes. The page's own bindings come before those of the whole console. */
export class Keys {
  readonly #layers: Bindings[] = [];
  #prefix = "";
  #prefixAt = 0;

  /** Adds bindings, which win over earlier ones. Returns the function that removes them. */
  push(bindings: Bindings): () => void {
    this.#layers.push(bindings);
    return () => {
      const at = this.#layers.lastIndexOf(bindings);
      if (at >= 0) this.#layers.splice(at, 1);
    };
  }

  /** Runs the binding of a key. Reports whether there was one. */
  handle(event: KeyboardEvent, now: number): boolean {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return false;
    if (event.key !== "Escape" && isTyping(event.target)) return false;
    const sequence = this.#prefix && now - this.#prefixAt < sequenceMs ? `${this.#prefix} ${event.key}` : "";
    this.#prefix = "";
    const run = (sequence && this.#find(sequence)) || this.#find(event.key);
    if (run) {
      event.preventDefault();
      run(event);
      return true;
    }
    if (this.#layers.some((layer) => Object.keys(layer).some((name) => name.startsWith(`${event.key} `)))) {
      this.#prefix = event.key;
      this.#prefixAt = now;
    }
    return false;
  }

  #find(name: string): ((event: KeyboardEvent) => void) | undefined {
    return this.#layers.findLast((layer) => name in layer)?.[name];
  }
}

/** Keys of fields belong to the fields, and Enter and Space to buttons and links. */
function isTyping(target: EventTarget | null): boolean {
  if (target === null || !("closest" in target)) return false;
  return (target as Element).closest("input, textarea, select, [contenteditable], dialog [role=menu]") !== null;
}

export const keys = new Keys();

/** Keys with their meaning, for the page that "?" shows. Each has the key strokes of one meaning. */
export const describedKeys: readonly {
  readonly where: string;
  readonly keys: readonly (readonly [names: readonly string[], what: string])[];
}[] = [
  {
    where: "Everywhere",
    keys: [
      [["g f"], "Fleet"],
      [["g i"], "Inbox"],
      [["g u"], "Usage"],
      [["g r"], "Runtimes"],
      [["?"], "Show these keys"],
    ],
  },
  {
    where: "Lists",
    keys: [
      [["j", "k"], "Next, previous"],
      [["Enter"], "Open the session"],
      [["/"], "Search the fleet"],
      [["c"], "New session"],
    ],
  },
  {
    where: "Prompts",
    keys: [
      [["Enter"], "Send; while a turn runs, queue"],
      [["Ctrl Enter"], "Steer the running turn"],
      [["Shift Enter"], "New line"],
      [["Esc"], "Leave the field, then the session"],
    ],
  },
  {
    where: "A request that waits",
    keys: [
      [["a"], "Approve once"],
      [["s"], "Approve for the session"],
      [["r"], "Refuse with feedback"],
    ],
  },
];
