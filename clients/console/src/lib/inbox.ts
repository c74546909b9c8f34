import { type Callback, CallbackOutcome } from "@copilot-grpc/client/gen/copilot/bridge/v1/callback_pb";
import { millis } from "./format.js";

/** A request that was answered elsewhere a moment ago. */
export interface Settled {
  readonly callback: Callback;
  /** "answered by ann", "timed out". */
  readonly how: string;
  readonly at: number;
}

/** What waits for a person, over all sessions. */
export interface Inbox {
  /** By session and id. */
  readonly waiting: ReadonlyMap<string, Callback>;
  /** The last requests that others settled, newest first. */
  readonly settled: readonly Settled[];
  readonly complete: boolean;
}

export const emptyInbox: Inbox = { waiting: new Map(), settled: [], complete: false };

/** Time for which a request that was settled elsewhere stays visible, in milliseconds. */
export const settledMs = 6_000;

/** A change of the inbox. */
export type InboxChange =
  | { readonly kind: "requested"; readonly callback: Callback }
  | {
      readonly kind: "resolved";
      readonly sessionId: string;
      readonly callbackId: string;
      readonly outcome: CallbackOutcome;
      readonly answeredBy: string;
    }
  /** The caller no longer sees the session. */
  | { readonly kind: "unmatched"; readonly sessionId: string }
  | { readonly kind: "caughtUp" }
  /** Everything that waits follows. */
  | { readonly kind: "reset" };

export function keyOf(sessionId: string, callbackId: string): string {
  return `${sessionId}\n${callbackId}`;
}

/** The inbox after changes. `own` are the keys that this page answered: they disappear without a word. */
export function applyInbox(inbox: Inbox, changes: readonly InboxChange[], own: ReadonlySet<string>, now: number): Inbox {
  const waiting = new Map(inbox.waiting);
  let settled = inbox.settled.filter(({ at }) => now - at < settledMs);
  let { complete } = inbox;
  for (const change of changes) {
    switch (change.kind) {
      case "requested":
        waiting.set(keyOf(change.callback.sessionId, change.callback.callbackId), change.callback);
        break;
      case "resolved": {
        const key = keyOf(change.sessionId, change.callbackId);
        const callback = waiting.get(key);
        waiting.delete(key);
        if (callback && !own.has(key)) {
          settled = [{ callback, how: outcomeText(change.outcome, change.answeredBy), at: now }, ...settled].slice(0, 5);
        }
        break;
      }
      case "unmatched":
        for (const [key, { sessionId }] of waiting) if (sessionId === change.sessionId) waiting.delete(key);
        break;
      case "caughtUp":
        complete = true;
        break;
      case "reset":
        waiting.clear();
        complete = false;
        break;
    }
  }
  return { waiting, settled, complete };
}

export function outcomeText(outcome: CallbackOutcome, answeredBy: string): string {
  switch (outcome) {
    case CallbackOutcome.ANSWERED:
      return answeredBy ? `answered by ${answeredBy}` : "answered elsewhere";
    case CallbackOutcome.TIMED_OUT:
      return "the time for an answer is over";
    case CallbackOutcome.WITHDRAWN:
      return "no longer needed";
    case CallbackOutcome.RUNTIME_LOST:
      return "lost with its CLI process";
    case CallbackOutcome.SESSION_ENDED:
      return "the session has ended";
    default:
      return "settled";
  }
}

/** What waits, oldest first. */
export function waitingOf(inbox: Inbox): Callback[] {
  return [...inbox.waiting.values()].sort((a, b) => millis(a.createTime) - millis(b.createTime));
}

/** How many requests wait in each session. */
export function waitingBySession(inbox: Inbox): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { sessionId } of inbox.waiting.values()) counts.set(sessionId, (counts.get(sessionId) ?? 0) + 1);
  return counts;
}
