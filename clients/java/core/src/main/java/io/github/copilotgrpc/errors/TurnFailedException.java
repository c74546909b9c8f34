package io.github.copilotgrpc.errors;

import io.github.copilotgrpc.Outcome;
import io.grpc.Status;

/** A turn did not complete; {@link #outcome()} has the details. */
public final class TurnFailedException extends CopilotException {
	private static final long serialVersionUID = 1L;

	private final transient Outcome outcome;

	/**
	 * Makes an exception.
	 *
	 * @param outcome the turn's end
	 */
	public TurnFailedException(Outcome outcome) {
		super("turn " + outcome.status() + outcome.error().map(error -> ": " + error.getMessage()).orElse(""),
				new Details(Status.Code.ABORTED, ""), null);
		this.outcome = outcome;
	}

	/**
	 * Returns the turn's end.
	 *
	 * @return the outcome
	 */
	public Outcome outcome() {
		return outcome;
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
