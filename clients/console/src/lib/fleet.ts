import { SessionChange, type WatchSessionsResponse } from "@copilot-grpc/client/gen/copilot/bridge/v1/event_service_pb";
import { type Position, type Session as SessionMessage, SessionState } from "@copilot-grpc/client/gen/copilot/bridge/v1/session_pb";
import { millis } from "./format.js";

/** All sessions of the caller, by id. */
export interface Fleet {
  readonly sessions: ReadonlyMap<string, SessionMessage>;
  /** The stored sessions are listed too. */
  readonly complete: boolean;
}

export const emptyFleet: Fleet = { sessions: new Map(), complete: false };

/** The fleet after changes, in order. */
export function applyChanges(fleet: Fleet, changes: readonly WatchSessionsResponse[]): Fleet {
  const sessions = new Map(fleet.sessions);
  for (const { change, session } of changes) {
    if (!session || change === SessionChange.HEARTBEAT || change === SessionChange.RESET) continue;
    const id = session.sessionId;
    if (isGone(change)) sessions.delete(id);
    else sessions.set(id, merged(sessions.get(id), session));
  }
  return { ...fleet, sessions };
}

/** UNMATCHED (12) is of streams with a filter: the session no longer matches. */
function isGone(change: SessionChange): boolean {
  return change === SessionChange.DELETED || change === SessionChange.UNSHARED || Number(change) === 12;
}

/** Only lists have the shares of a session. */
function merged(before: SessionMessage | undefined, session: SessionMessage): SessionMessage {
  return before && session.shares.length === 0 && before.shares.length > 0
    ? { ...session, shares: before.shares }
    : session;
}

/** The fleet with the sessions of a list. Sessions that the stream reported are newer than the list. */
export function applyList(fleet: Fleet, list: readonly SessionMessage[], streamed: ReadonlySet<string>): Fleet {
  const sessions = new Map<string, SessionMessage>();
  for (const session of list) sessions.set(session.sessionId, session);
  for (const [id, session] of fleet.sessions) {
    if (streamed.has(id)) sessions.set(id, merged(sessions.get(id), session));
  }
  return { sessions, complete: true };
}

/** What a row of the fleet says about its session. */
export type RowState = "waiting" | "running" | "idle" | "credentials" | "damaged" | "closed";

/** A row of the fleet. */
export interface FleetRow {
  readonly id: string;
  readonly title: string;
  readonly state: RowState;
  /** Number of requests that wait for a person. */
  readonly waiting: number;
  readonly model: string;
  readonly directory: string;
  readonly branch: string;
  readonly owner: string;
  /** What the session is about; empty if the title says it. */
  readonly summary: string;
  readonly labels: readonly (readonly [string, string])[];
  readonly people: readonly string[];
  readonly updatedAt: number;
  readonly problem: string;
  /** The position of the session's last event; undefined if the server has no events of it. */
  readonly position: Position | undefined;
  readonly turnRunning: boolean;
}

export function rowOf(session: SessionMessage, waiting: number): FleetRow {
  return {
    id: session.sessionId,
    title: titleOf(session),
    summary: session.name ? session.summary : "",
    state: stateOf(session, waiting),
    waiting,
    model: session.modelId,
    directory: session.context?.workingDirectory ?? "",
    branch: session.context?.branch ?? "",
    owner: session.owner,
    labels: labelsOf(session),
    people: session.participants.filter(({ connected }) => connected).map(({ name, participantId }) => name || participantId),
    updatedAt: millis(session.updateTime) || millis(session.createTime),
    problem: session.damage?.reason ?? session.storageProblem,
    position: session.position,
    turnRunning: session.turnRunning,
  };
}

/** The labels of a session in order; a server without labels has none. */
export function labelsOf(session: SessionMessage): (readonly [string, string])[] {
  const { labels = {} } = session as { labels?: Record<string, string> };
  return Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1));
}

/** The name of a session for people. */
export function titleOf(session: SessionMessage): string {
  return session.name || session.summary || session.sessionId;
}

export function stateOf(session: SessionMessage, waiting: number): RowState {
  if (session.state === SessionState.DAMAGED) return "damaged";
  if (waiting > 0) return "waiting";
  if (session.state === SessionState.CREDENTIALS_NEEDED) return "credentials";
  if (session.turnRunning) return "running";
  const closed = session.state === SessionState.STORED || session.state === SessionState.DISCONNECTED;
  return closed ? "closed" : "idle";
}

/** What the fleet shows. */
export interface FleetFilter {
  /** Words that all must occur. */
  readonly search: string;
  readonly state: RowState | "";
  readonly model: string;
  readonly directory: string;
  readonly owner: string;
  /** "key=value". */
  readonly label: string;
}

export const emptyFilter: FleetFilter = { search: "", state: "", model: "", directory: "", owner: "", label: "" };

const rank: Record<RowState, number> = { waiting: 0, damaged: 2, credentials: 2, running: 1, idle: 2, closed: 3 };

/** The rows in their order: those that wait, those that run, and the others by their last use. */
export function rowsOf(fleet: Fleet, waiting: ReadonlyMap<string, number>): FleetRow[] {
  const rows = [...fleet.sessions.values()].map((session) => rowOf(session, waiting.get(session.sessionId) ?? 0));
  return rows.sort(
    (a, b) => rank[a.state] - rank[b.state] || b.updatedAt - a.updatedAt || (a.id < b.id ? -1 : 1),
  );
}

export function matches(row: FleetRow, filter: FleetFilter): boolean {
  if (filter.state && row.state !== filter.state) return false;
  if (filter.model && row.model !== filter.model) return false;
  if (filter.directory && row.directory !== filter.directory) return false;
  if (filter.owner && row.owner !== filter.owner) return false;
  if (filter.label && !row.labels.some(([key, value]) => `${key}=${value}` === filter.label)) return false;
  if (!filter.search.trim()) return true;
  const labels = row.labels.map(([key, value]) => `${key}=${value}`).join(" ");
  const text = `${row.title} ${row.summary} ${row.id} ${row.model} ${row.directory} ${row.branch} ${row.owner} ${labels}`.toLowerCase();
  return filter.search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

/** The values to offer as filters, most frequent first. */
export function choices(rows: readonly FleetRow[], values: (row: FleetRow) => readonly string[]): string[] {
  const counts = new Map<string, number>();
  for (const row of rows) for (const value of values(row)) if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1)).map(([value]) => value);
}
