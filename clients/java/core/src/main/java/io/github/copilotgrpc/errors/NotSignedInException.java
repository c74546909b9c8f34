package io.github.copilotgrpc.errors;

/** The CLI is not signed in, and the session has no provider. */
public final class NotSignedInException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public NotSignedInException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}
}
