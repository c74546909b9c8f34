package io.github.copilotgrpc;

/** Tools and handlers of a participant that joins a session. Not safe for concurrent use. */
public final class ParticipantOptions extends HandlerOptions<ParticipantOptions> {
	/** Options without tools and handlers. */
	public ParticipantOptions() {}

	@Override
	ParticipantOptions self() {
		return this;
	}
}
