package io.github.copilotgrpc.errors;

/** The call has no credentials, or wrong or expired ones. */
public final class UnauthenticatedException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public UnauthenticatedException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}
}
