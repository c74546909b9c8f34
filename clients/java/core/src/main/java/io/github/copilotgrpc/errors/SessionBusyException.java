package io.github.copilotgrpc.errors;

/** The session's current activity does not permit the operation. */
public final class SessionBusyException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public SessionBusyException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}
}
