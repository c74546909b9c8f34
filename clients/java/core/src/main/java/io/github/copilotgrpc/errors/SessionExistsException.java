package io.github.copilotgrpc.errors;

/** A session with that id exists. */
public final class SessionExistsException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public SessionExistsException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}
}
