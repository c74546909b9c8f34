package io.github.copilotgrpc.errors;

/** No such callback is pending. */
public final class CallbackNotFoundException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public CallbackNotFoundException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}
}
