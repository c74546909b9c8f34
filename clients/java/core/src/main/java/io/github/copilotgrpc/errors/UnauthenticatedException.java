package io.github.copilotgrpc.errors;

/** The call has no credentials, or wrong or expired ones. */
public final class UnauthenticatedException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/** The client has another token than the refused one. */
	private final boolean tokenReplaced;

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public UnauthenticatedException(String message, Details details, Throwable cause) {
		this(message, details, cause, false);
	}

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 * @param tokenReplaced the client has another token than the refused one
	 */
	public UnauthenticatedException(String message, Details details, Throwable cause, boolean tokenReplaced) {
		super(message, details, cause);
		this.tokenReplaced = tokenReplaced;
	}

	/**
	 * Reports whether the client has another token than the refused one, so that a new attempt may help.
	 *
	 * @return whether the token was replaced during the call
	 */
	public boolean isTokenReplaced() {
		return tokenReplaced;
	}

	@Override
	public boolean isBroken() {
		return tokenReplaced;
	}
}
