package io.github.copilotgrpc.errors;

import io.grpc.Status;

/** The server cannot be reached, or the connection broke. */
public class ConnectionLostException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what gRPC reported
	 * @param cause the error of gRPC; may be null
	 */
	public ConnectionLostException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}

	/**
	 * Makes an exception of the library itself.
	 *
	 * @param message human-readable
	 */
	public ConnectionLostException(String message) {
		this(message, new Details(Status.Code.UNAVAILABLE, ""), null);
	}
}
