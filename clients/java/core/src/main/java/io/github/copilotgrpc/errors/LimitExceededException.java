package io.github.copilotgrpc.errors;

/** A limit is reached; {@link #retryAfter()} may say when a retry can succeed. */
public final class LimitExceededException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public LimitExceededException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}
}
