package io.github.copilotgrpc.errors;

import io.grpc.Status;

/** The participation is over: closed by this program, or ended by the server. */
public final class SessionClosedException extends CopilotException {
	private static final long serialVersionUID = 1L;

	private final transient String sessionId;
	private final transient String closeReason;

	/**
	 * Makes an exception.
	 *
	 * @param sessionId the session
	 * @param closeReason see {@link #closeReason()}
	 */
	public SessionClosedException(String sessionId, String closeReason) {
		super("session " + sessionId + " is over for this participant: " + closeReason,
				new Details(Status.Code.CANCELLED, ""), null);
		this.sessionId = sessionId;
		this.closeReason = closeReason;
	}

	/**
	 * Returns the session's id.
	 *
	 * @return the id
	 */
	public String sessionId() {
		return sessionId;
	}

	/**
	 * Returns the cause: "closed" if this program closed the session; otherwise "disconnected", "deleted", "left",
	 * "replaced" or "unshared".
	 *
	 * @return the cause
	 */
	public String closeReason() {
		return closeReason;
	}

	/**
	 * Returns false: a new connection does not help.
	 *
	 * @return false
	 */
	@Override
	public boolean isBroken() {
		return false;
	}
}
