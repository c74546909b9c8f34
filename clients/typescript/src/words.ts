import * as proto from "./proto.js";

/** The names of an enum's values in lower case. */
type Word<E> = Lowercase<Extract<keyof E, string>>;

/** Whether a session is in memory, and what opens it otherwise. */
export type SessionState = Word<typeof proto.SessionState>;
/** What happened to a session. */
export type SessionChangeKind = Word<typeof proto.SessionChange>;
/** Why events are missing. */
export type GapReason = Word<typeof proto.GapReason>;
/** Why the frames of a session, or a participation, have ended. */
export type CloseReason = Word<typeof proto.CloseReason>;
/** The kind of a callback: the name of its request's case in the API. */
export type CallbackKind = Word<typeof proto.CallbackKind>;
/** How a callback ended. */
export type CallbackOutcome = Word<typeof proto.CallbackOutcome>;

/** A value of an enum as a word; its number as text if the value is newer than this library. */
export function wordOf<E extends Record<string, string | number>>(names: E, value: number): Word<E> {
  return String(names[value] ?? value).toLowerCase() as Word<E>;
}

/** The value of a kind of callback. Throws a TypeError for a word that is none. */
export function kindOf(word: CallbackKind): proto.CallbackKind {
  const value = proto.CallbackKind[word.toUpperCase() as keyof typeof proto.CallbackKind] as
    proto.CallbackKind | undefined;
  if (typeof value !== "number") throw new TypeError(`not a kind of callback: ${JSON.stringify(word)}`);
  return value;
}
