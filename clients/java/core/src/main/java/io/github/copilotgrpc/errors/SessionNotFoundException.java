package io.github.copilotgrpc.errors;

/** The session does not exist, does not belong to the caller, or is disconnected. */
public final class SessionNotFoundException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public SessionNotFoundException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}
}
