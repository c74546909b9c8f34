package io.github.copilotgrpc.errors;

/** The CLI process ended during the call. */
public final class RuntimeLostException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public RuntimeLostException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}
}
