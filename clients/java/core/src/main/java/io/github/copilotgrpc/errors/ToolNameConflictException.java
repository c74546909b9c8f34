package io.github.copilotgrpc.errors;

/**
 * Another participant, or the session, has a tool of that name. The metadata {@code holder} names the participant; if its
 * connection is broken, {@code disconnected_since} says since when, and {@code free_at} when the name is free.
 */
public final class ToolNameConflictException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public ToolNameConflictException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}
}
