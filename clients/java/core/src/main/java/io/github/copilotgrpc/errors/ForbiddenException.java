package io.github.copilotgrpc.errors;

/** The caller may not do this. */
public final class ForbiddenException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public ForbiddenException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}
}
