package io.github.copilotgrpc;

/** Thrown by a tool to fail with a text that the model reads. */
public class ToolException extends Exception {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param message text for the model
	 */
	public ToolException(String message) {
		super(message);
	}
}
