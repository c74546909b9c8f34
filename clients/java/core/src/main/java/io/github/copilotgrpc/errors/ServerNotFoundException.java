package io.github.copilotgrpc.errors;

import io.grpc.Status;

/** There is no server to connect to; the message contains the remedy. */
public final class ServerNotFoundException extends ConnectionLostException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 */
	public ServerNotFoundException(String message) {
		super(message, new Details(Status.Code.UNAVAILABLE, ""), null);
	}
}
