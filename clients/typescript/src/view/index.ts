/**
 * The state of a user interface, computed from the frames of a session. The module has no clock, no network and no
 * other state: the same frames always result in the same view.
 *
 * @packageDocumentation
 */
import { comparePositions, formatPosition } from "../position.js";
import { SessionInfo } from "../info.js";
import * as proto from "../proto.js";
import { outcomeData } from "../turn.js";
import { idle, reduceEvent } from "./events.js";
import { append, inBatch, mapItems } from "./items.js";
import type { View } from "./state.js";
import { wordOf } from "../words.js";

export { emptyView } from "./state.js";
export type {
  AgentView,
  AttachmentView,
  GapItem,
  MessageItem,
  NoticeItem,
  ReasoningItem,
  RestartItem,
  ToolItem,
  TurnView,
  UsageView,
  UserItem,
  View,
  ViewItem,
} from "./state.js";

/**
 * The view after a frame of `Session.frames`. Frames that arrive twice change nothing, and frames and events that are
 * newer than this library change only the position.
 */
export function reduce(view: View, response: proto.SubscribeResponse): View {
  const next = inBatch(() => reduceFrame(view, response));
  return comparePositions(response.resumeAfter, next.position) > 0 ? { ...next, position: response.resumeAfter } : next;
}

function reduceFrame(view: View, { frame }: proto.SubscribeResponse): View {
  switch (frame.case) {
    case "started": {
      const { session, pendingCallbacks } = frame.value;
      return { ...withSession(view, session), pending: pendingCallbacks, goingAway: false, closed: undefined };
    }
    case "events":
      return frame.value.events.reduce(reduceNewEvent, view);
    case "caughtUp":
      return { ...afterReplay(view), caughtUp: true };
    case "gap": {
      const { after, through, reason, session, pendingCallbacks } = frame.value;
      if (comparePositions(through, view.position) <= 0) return view;
      const key = `gap ${formatPosition(through)}`;
      const word = wordOf(proto.GapReason, reason);
      const next = append(view, { kind: "gap", key, reason: word, after, position: through });
      return { ...withSession(next, session), pending: pendingCallbacks };
    }
    case "callbackRequested":
      return frame.value.callback ? { ...view, pending: withPending(view.pending, frame.value.callback) } : view;
    case "callbackResolved": {
      const { callbackId } = frame.value;
      return { ...view, pending: view.pending.filter((callback) => callback.callbackId !== callbackId) };
    }
    case "runtimeRestarted": {
      const { cause, turnOutcome } = frame.value;
      const key = `restart ${formatPosition(view.position)}/${view.items.length}`;
      const next = append(view, { kind: "restart", key, cause, position: view.position });
      return turnOutcome ? withOutcome(next, turnOutcome) : next;
    }
    case "turnEnded":
      return withLost(withOutcome(view, frame.value.outcome), frame.value.messageIds);
    case "goAway":
      return { ...view, goingAway: true };
    case "closed":
      return { ...idle(view), pending: [], closed: wordOf(proto.CloseReason, frame.value.reason) };
    default:
      return view;
  }
}

function reduceNewEvent(view: View, event: proto.Event): View {
  if (comparePositions(event.position, view.position) <= 0) return view;
  return { ...reduceEvent(view, event), position: event.position };
}

/** The session as the server reports it, for the state before the first event. */
function withSession(view: View, session: proto.SessionMessage | undefined): View {
  if (!session) return view;
  const known = { ...view, session: new SessionInfo(session), title: session.summary || view.title, model: session.modelId || view.model };
  if (session.turnRunning === view.turn.running) return known;
  return session.turnRunning ? { ...known, turn: { ...view.turn, running: true } } : idle(known);
}

/** Without a running turn at the start of the stream, the replay ends idle: the end of a turn is not always stored. */
function afterReplay(view: View): View {
  const { position } = view;
  const session = view.session?.proto;
  if (!session || session.turnRunning || comparePositions(position, session.position) > 0) return view;
  return idle(view);
}

function withPending(pending: readonly proto.Callback[], callback: proto.Callback): readonly proto.Callback[] {
  return [...pending.filter(({ callbackId }) => callbackId !== callback.callbackId), callback];
}

function withOutcome(view: View, turn: proto.TurnOutcome | undefined): View {
  const ended = idle(view);
  return turn ? { ...ended, turn: { ...ended.turn, outcome: outcomeData("", turn) } } : ended;
}

function withLost(view: View, messageIds: string[]): View {
  if (messageIds.length === 0) return view;
  const lost = new Set(messageIds);
  return mapItems(view, (item) => (item.kind === "user" && lost.has(item.key) ? { ...item, lost: true } : item));
}
