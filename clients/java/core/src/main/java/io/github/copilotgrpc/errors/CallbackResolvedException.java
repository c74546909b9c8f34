package io.github.copilotgrpc.errors;

/** The callback has been answered or withdrawn. */
public final class CallbackResolvedException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public CallbackResolvedException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}
}
