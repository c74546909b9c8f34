package io.github.copilotgrpc;

/** An item of a stream of events: an event, or a note that events are missing. */
public sealed interface StreamItem permits Event, Gap {
	/**
	 * Returns the position in the session's journal: of the event, or of the last missing one.
	 *
	 * @return the position
	 */
	Position position();
}
