package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.WatchSessionsResponse;
import java.util.Locale;

/**
 * A change of a session; see {@link CopilotClient#watchSessions}.
 *
 * @param proto the change, with the CLI's own notification if the request asked for them
 */
public record SessionChange(WatchSessionsResponse proto) {
	/** What happened. */
	public enum Kind {
		/** The session exists: once for each open session at the start of the stream. */
		CURRENT,
		/** The session was created. */
		CREATED,
		/** The session's name, summary, context, labels or state changed, or a turn began or ended. */
		UPDATED,
		/** The session was deleted. */
		DELETED,
		/** The host shows the session. */
		FOREGROUND,
		/** The host no longer shows the session. */
		BACKGROUND,
		/** The session was disconnected. */
		DISCONNECTED,
		/** Changes were skipped because this program read too slowly; a CURRENT one follows for each open session. */
		RESET,
		/** The caller's tenant accepted a share of the session. */
		SHARED,
		/** The share with the caller's tenant ended. */
		UNSHARED,
		/** The session no longer matches the filter. */
		UNMATCHED,
		/** The CLI sent a notification, which {@link SessionChange#proto()} has. */
		NOTIFICATION,
		/** A change that is newer than this library. */
		UNKNOWN;

		/** Returns the word of the API, such as {@code created}. */
		@Override
		public String toString() {
			return name().toLowerCase(Locale.ROOT);
		}
	}

	/**
	 * Returns what happened.
	 *
	 * @return the kind
	 */
	public Kind kind() {
		return switch (proto.getChange()) {
			case SESSION_CHANGE_CURRENT -> Kind.CURRENT;
			case SESSION_CHANGE_CREATED -> Kind.CREATED;
			case SESSION_CHANGE_UPDATED -> Kind.UPDATED;
			case SESSION_CHANGE_DELETED -> Kind.DELETED;
			case SESSION_CHANGE_FOREGROUND -> Kind.FOREGROUND;
			case SESSION_CHANGE_BACKGROUND -> Kind.BACKGROUND;
			case SESSION_CHANGE_DISCONNECTED -> Kind.DISCONNECTED;
			case SESSION_CHANGE_RESET -> Kind.RESET;
			case SESSION_CHANGE_SHARED -> Kind.SHARED;
			case SESSION_CHANGE_UNSHARED -> Kind.UNSHARED;
			case SESSION_CHANGE_UNMATCHED -> Kind.UNMATCHED;
			case SESSION_CHANGE_NOTIFICATION -> Kind.NOTIFICATION;
			case SESSION_CHANGE_HEARTBEAT, SESSION_CHANGE_UNSPECIFIED, UNRECOGNIZED -> Kind.UNKNOWN;
		};
	}

	/**
	 * Returns the session after the change.
	 *
	 * @return the session; only its id after {@link Kind#DELETED} and {@link Kind#UNSHARED}
	 */
	public SessionInfo session() {
		return new SessionInfo(proto.getSession());
	}
}
