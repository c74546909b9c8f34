package io.github.copilotgrpc.errors;

/** The participant does not exist, or its grace time has expired. */
public final class ParticipantNotFoundException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public ParticipantNotFoundException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}
}
