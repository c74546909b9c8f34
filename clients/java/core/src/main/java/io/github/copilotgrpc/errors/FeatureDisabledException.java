package io.github.copilotgrpc.errors;

/** The feature is disabled in this server. */
public final class FeatureDisabledException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public FeatureDisabledException(String message, Details details, Throwable cause) {
		super(message, details, cause);
	}
}
