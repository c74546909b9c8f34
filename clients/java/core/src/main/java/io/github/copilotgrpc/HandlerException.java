package io.github.copilotgrpc;

/** Thrown by a handler of callbacks to answer with an error and its text. */
public class HandlerException extends Exception {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message text of the answer
	 */
	public HandlerException(String message) {
		super(String.valueOf(message));
	}
}
