import { create } from "@bufbuild/protobuf";
import { type Position, PositionSchema } from "./proto.js";

/** Orders two positions of a session: negative if `a` is before `b`. Undefined is before every position. */
export function comparePositions(a: Position | undefined, b: Position | undefined): number {
  const byEpoch = compare(a?.epoch ?? 0n, b?.epoch ?? 0n);
  return byEpoch !== 0 ? byEpoch : compare(a?.seq ?? 0n, b?.seq ?? 0n);
}

function compare(a: bigint, b: bigint): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** A position as text, "EPOCH/SEQ", for example to store it. */
export function formatPosition(position: Position | undefined): string {
  return `${position?.epoch ?? 0n}/${position?.seq ?? 0n}`;
}

/** The position of a text that {@link formatPosition} wrote. Throws a RangeError for any other text. */
export function parsePosition(text: string): Position {
  const parts = /^(\d+)\/(\d+)$/.exec(text);
  if (!parts) throw new RangeError(`not a position: ${JSON.stringify(text)}; want EPOCH/SEQ`);
  return create(PositionSchema, { epoch: BigInt(parts[1] ?? 0), seq: BigInt(parts[2] ?? 0) });
}

/** The latest position of a session that this program has seen. */
export class Progress {
  #last: Position | undefined;

  /** The latest position; undefined if none was seen. */
  get last(): Position | undefined {
    return this.#last;
  }

  /** Records a position unless a later one is known. */
  note(position: Position | undefined): void {
    if (position && comparePositions(position, this.#last) > 0) this.#last = position;
  }

  /** Records the position that a reply carries in its trailer. */
  noteTrailer(trailer: Headers): void {
    const text = trailer.get("copilot-position");
    if (text && /^\d+\/\d+$/.test(text)) this.note(parsePosition(text));
  }
}
