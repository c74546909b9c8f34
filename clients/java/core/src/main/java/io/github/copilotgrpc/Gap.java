package io.github.copilotgrpc;

/**
 * Events that are missing, in the place where they would be.
 *
 * @param message the gap, with the session and its pending callbacks
 */
public record Gap(io.github.copilotgrpc.bridge.v1.Gap message) implements StreamItem {
	/**
	 * Returns the position before the first missing event.
	 *
	 * @return the position
	 */
	public Position after() {
		return Position.of(message.getAfter());
	}

	/** Returns the position of the last missing event. */
	@Override
	public Position position() {
		return Position.of(message.getThrough());
	}

	/**
	 * Returns the cause.
	 *
	 * @return the cause
	 */
	public GapReason reason() {
		return GapReason.of(message.getReason());
	}

	/** Whether ephemeral events, such as deltas of old turns, are missing. */
	boolean isEphemeral() {
		return reason() == GapReason.EPHEMERAL_LOST;
	}
}
