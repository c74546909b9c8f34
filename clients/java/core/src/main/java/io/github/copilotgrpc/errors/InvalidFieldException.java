package io.github.copilotgrpc.errors;

/** A field of the request is missing, malformed or out of its range; {@link #field()} names it. */
public final class InvalidFieldException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public InvalidFieldException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}
}
