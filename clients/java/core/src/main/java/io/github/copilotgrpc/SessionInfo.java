package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.Session;

/**
 * A session as the server describes it at one time. {@link CopilotSession} is a session to work with.
 *
 * @param proto everything that the server says about the session: labels, participants, times and so on
 */
public record SessionInfo(Session proto) {
	/**
	 * Returns the session's id.
	 *
	 * @return the id
	 */
	public String id() {
		return proto.getSessionId();
	}

	/**
	 * Returns the state.
	 *
	 * @return the state
	 */
	public SessionState state() {
		return SessionState.of(proto.getState());
	}

	/**
	 * Returns the session's name, or else a line that the CLI derives from its first messages.
	 *
	 * @return the title; empty if there is none yet
	 */
	public String title() {
		return proto.getName().isEmpty() ? proto.getSummary() : proto.getName();
	}

	/**
	 * Returns the id of the model in use.
	 *
	 * @return the model; empty if it is not known
	 */
	public String model() {
		return proto.getModelId();
	}

	/** Returns id, state and title. */
	@Override
	public String toString() {
		return id() + " " + state() + (title().isEmpty() ? "" : " " + title());
	}
}
