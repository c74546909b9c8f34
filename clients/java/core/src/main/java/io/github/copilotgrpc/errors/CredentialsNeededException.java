package io.github.copilotgrpc.errors;

/** The session's provider needs credentials that the server no longer has. */
public final class CredentialsNeededException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public CredentialsNeededException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}
}
