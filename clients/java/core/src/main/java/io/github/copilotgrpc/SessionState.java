package io.github.copilotgrpc;

import java.util.Locale;

/** The state of a session on its server. */
public enum SessionState {
	/** A CLI process has the session in memory. */
	LOADED,
	/** No CLI process has the session in memory; the next call loads it. */
	UNLOADED,
	/** The session was disconnected; {@link CopilotClient#resumeSession} opens it. */
	DISCONNECTED,
	/** As {@link #UNLOADED}, but loading the session needs the credentials of its model provider. */
	CREDENTIALS_NEEDED,
	/** The session is in the CLI's history, and was not opened by this server. */
	STORED,
	/** The server cannot read the session's state. {@link CopilotClient#resumeSession} opens it with what remains. */
	DAMAGED,
	/** A state that is newer than this library. */
	UNKNOWN;

	static SessionState of(io.github.copilotgrpc.bridge.v1.SessionState state) {
		return switch (state) {
			case SESSION_STATE_LOADED -> LOADED;
			case SESSION_STATE_UNLOADED -> UNLOADED;
			case SESSION_STATE_DISCONNECTED -> DISCONNECTED;
			case SESSION_STATE_CREDENTIALS_NEEDED -> CREDENTIALS_NEEDED;
			case SESSION_STATE_STORED -> STORED;
			case SESSION_STATE_DAMAGED -> DAMAGED;
			case SESSION_STATE_UNSPECIFIED, UNRECOGNIZED -> UNKNOWN;
		};
	}

	/** Returns the word of the API, such as {@code loaded}. */
	@Override
	public String toString() {
		return name().toLowerCase(Locale.ROOT);
	}
}
