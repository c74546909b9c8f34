package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.TurnError;
import io.github.copilotgrpc.bridge.v1.TurnOutcome;
import io.github.copilotgrpc.errors.TurnFailedException;
import java.util.Locale;
import java.util.Optional;

/**
 * The end of a turn.
 *
 * @param status how the turn ended
 * @param text the agent's last message; empty if there is none
 * @param messageId id of the prompt
 * @param error the error of a failed turn
 * @param messagePosition position of the agent's last message
 * @param endPosition position of the turn's end; empty if the turn continues
 */
public record Outcome(
		Status status, String text, String messageId, Optional<TurnError> error, Optional<Position> messagePosition,
		Optional<Position> endPosition) {
	/** The ways in which a turn ends. */
	public enum Status {
		/** The agent has finished. */
		COMPLETED,
		/** A caller stopped the turn. */
		ABORTED,
		/** An error ended the turn; {@link Outcome#error()} has it. */
		FAILED,
		/** The turn made no progress, and the server ended it. */
		STALLED,
		/** The CLI process ended during the turn. */
		RUNTIME_LOST,
		/** Only the wait ended; the turn continues. */
		TIMED_OUT,
		/** A status that is newer than this library. */
		UNKNOWN;

		/** Returns the word of the API, such as {@code completed}. */
		@Override
		public String toString() {
			return name().toLowerCase(Locale.ROOT);
		}
	}

	static Outcome of(String messageId, TurnOutcome outcome) {
		Status status = switch (outcome.getStatus()) {
			case TURN_STATUS_COMPLETED -> Status.COMPLETED;
			case TURN_STATUS_ABORTED -> Status.ABORTED;
			case TURN_STATUS_FAILED -> Status.FAILED;
			case TURN_STATUS_STALLED -> Status.STALLED;
			case TURN_STATUS_RUNTIME_LOST -> Status.RUNTIME_LOST;
			case TURN_STATUS_TIMED_OUT -> Status.TIMED_OUT;
			case TURN_STATUS_UNSPECIFIED, UNRECOGNIZED -> Status.UNKNOWN;
		};
		return new Outcome(status, outcome.getText(), messageId,
				outcome.hasError() ? Optional.of(outcome.getError()) : Optional.empty(),
				position(outcome.hasMessagePosition(), outcome.getMessagePosition()),
				position(outcome.hasEndPosition(), outcome.getEndPosition()));
	}

	private static Optional<Position> position(boolean present, io.github.copilotgrpc.bridge.v1.Position message) {
		return present ? Optional.of(Position.of(message)) : Optional.empty();
	}

	/**
	 * Reports whether the turn completed.
	 *
	 * @return whether it completed
	 */
	public boolean isCompleted() {
		return status == Status.COMPLETED;
	}

	/**
	 * Returns this outcome if the turn completed.
	 *
	 * @return this outcome
	 * @throws TurnFailedException the turn did not complete
	 */
	public Outcome orThrow() {
		if (!isCompleted()) {
			throw new TurnFailedException(this);
		}
		return this;
	}

	/** Returns the status, and the text or the error. */
	@Override
	public String toString() {
		String detail = error.map(TurnError::getMessage).orElse(text);
		return detail.isEmpty() ? status.toString() : status + ": " + detail;
	}
}
