package io.github.copilotgrpc.errors;

import io.grpc.Status;

/** The thread was interrupted while it waited. The call is cancelled, and the thread's interrupt status is set. */
public final class CallInterruptedException extends CopilotException {
	private static final long serialVersionUID = 1L;

	/**
	 * Makes an exception.
	 *
	 * @param cause the interruption
	 */
	public CallInterruptedException(InterruptedException cause) {
		super("the thread was interrupted", new Details(Status.Code.CANCELLED, ""), cause);
	}

	/**
	 * Returns false: a new connection does not help.
	 *
	 * @return false
	 */
	@Override
	public boolean isBroken() {
		return false;
	}
}
