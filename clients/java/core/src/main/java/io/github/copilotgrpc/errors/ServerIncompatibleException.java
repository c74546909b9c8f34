package io.github.copilotgrpc.errors;

import io.grpc.Status;

/** The server is no copilot-grpc, or its version does not work with this library. */
public final class ServerIncompatibleException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 */
	public ServerIncompatibleException(String message) {
		super(message, new Details(Status.Code.FAILED_PRECONDITION, ""), null);
	}
}
