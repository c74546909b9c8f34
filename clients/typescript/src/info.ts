import * as proto from "./proto.js";
import { type SessionChangeKind, type SessionState, wordOf } from "./words.js";

/** A session as lists, `getSession`, `Session.get` and `watchSessions` return it. */
export class SessionInfo {
  /** Everything that the server says about the session. */
  readonly proto: proto.SessionMessage;

  /** Makes it of a session that a generated client returned. */
  constructor(message: proto.SessionMessage) {
    this.proto = message;
  }

  /** The session's id. */
  get id(): string {
    return this.proto.sessionId;
  }

  /** Whether the session is in memory, and what opens it otherwise. */
  get state(): SessionState {
    return wordOf(proto.SessionState, this.proto.state);
  }

  /** The session's name, or else its summary; empty before the first turn. */
  get title(): string {
    return this.proto.name || this.proto.summary;
  }

  /** The model's id; empty if the server does not know it. */
  get model(): string {
    return this.proto.modelId;
  }
}

/** A change of one of the caller's sessions. */
export class SessionChange {
  /** The change as a message. */
  readonly proto: proto.WatchSessionsResponse;

  /** @internal */
  constructor(message: proto.WatchSessionsResponse) {
    this.proto = message;
  }

  /** The change, such as "created", "updated" or "deleted". */
  get kind(): SessionChangeKind {
    return wordOf(proto.SessionChange, this.proto.change);
  }

  /** The session after the change; only its id if it was deleted or is no longer shared. Undefined for a reset. */
  get session(): SessionInfo | undefined {
    return this.proto.session && new SessionInfo(this.proto.session);
  }
}
