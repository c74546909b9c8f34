package io.github.copilotgrpc;

import com.google.protobuf.Duration;
import io.github.copilotgrpc.bridge.v1.AttachStart;
import io.github.copilotgrpc.bridge.v1.EventFilter;
import io.github.copilotgrpc.bridge.v1.StreamOptions;
import io.github.copilotgrpc.bridge.v1.StreamStart;
import java.util.Optional;

/** Makes the start frames of a participant. */
record Starts(String defaultName, HandlerSet set, Handlers handlers) {
	/** Sets what every start frame of this participant has. */
	AttachStart complete(AttachStart start) {
		AttachStart.Builder whole = start.toBuilder()
				.setName(set.name().isEmpty() ? defaultName : set.name())
				.clearTools().addAllTools(handlers.declaredTools(false))
				.setHandlers(handlers.announced())
				.clearCommands().addAllCommands(set.commands())
				.setStart(StreamStart.STREAM_START_END)
				// Events have streams of their own.
				.setFilter(EventFilter.newBuilder().setExcludeAll(true))
				.setOptions(StreamOptions.newBuilder().setHeartbeatInterval(message(Connection.HEARTBEAT)));
		if (set.grace() != null) {
			whole.setGrace(message(set.grace()));
		}
		set.customizer().accept(whole);
		return whole.build();
	}

	/** The start frame that returns to a session. */
	AttachStart rejoin(String sessionId, String token, Optional<Position> after) {
		AttachStart.Builder start =
				AttachStart.newBuilder().setJoinSessionId(sessionId).setParticipantToken(token);
		after.ifPresent(position -> start.setAfter(position.toMessage()));
		return complete(start.build());
	}

	static Duration message(java.time.Duration time) {
		return Duration.newBuilder().setSeconds(time.getSeconds()).setNanos(time.getNano()).build();
	}
}
