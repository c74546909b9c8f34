package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.EventFilter;
import io.github.copilotgrpc.bridge.v1.SessionCursor;
import io.github.copilotgrpc.bridge.v1.StreamOptions;
import io.github.copilotgrpc.bridge.v1.StreamStart;
import io.github.copilotgrpc.bridge.v1.SubscribeRequest;
import java.time.Duration;
import java.util.List;
import java.util.Objects;

/**
 * Which events to read, and from where. Immutable: the methods return changed copies.
 *
 * <p>The default: from the position where this program opened the session (for a created session and a handle, from
 * the first event), all types except the large ones.
 */
public final class EventQuery {
	private enum Start { OPENED, BEGINNING, NOW }

	private static final EventQuery ALL = new EventQuery(
			Start.OPENED, null, EventFilter.getDefaultInstance(), StreamOptions.getDefaultInstance(), false);

	private final Start start;
	private final Position after; // null for none
	private final EventFilter filter;
	private final StreamOptions options;
	private final boolean ephemeralGaps;

	private EventQuery(
			Start start, Position after, EventFilter filter, StreamOptions options, boolean ephemeralGaps) {
		this.start = start;
		this.after = after;
		this.filter = filter;
		this.options = options;
		this.ephemeralGaps = ephemeralGaps;
	}

	/**
	 * Returns the default query.
	 *
	 * @return the query
	 */
	public static EventQuery all() {
		return ALL;
	}

	/**
	 * Starts after a position.
	 *
	 * @param position the position
	 * @return the changed copy
	 */
	public EventQuery after(Position position) {
		return new EventQuery(start, Objects.requireNonNull(position), filter, options, ephemeralGaps);
	}

	/**
	 * Starts at the first event of the session.
	 *
	 * @return the changed copy
	 */
	public EventQuery fromBeginning() {
		return new EventQuery(Start.BEGINNING, null, filter, options, ephemeralGaps);
	}

	/**
	 * Starts at the next event.
	 *
	 * @return the changed copy
	 */
	public EventQuery fromNow() {
		return new EventQuery(Start.NOW, null, filter, options, ephemeralGaps);
	}

	/**
	 * Reads only some types.
	 *
	 * @param types such as {@code assistant.message} or {@code assistant.*}
	 * @return the changed copy
	 */
	public EventQuery types(String... types) {
		return filter(filter.toBuilder().clearTypes().addAllTypes(List.of(types)).build());
	}

	/**
	 * Leaves out some types.
	 *
	 * @param types such as {@code model.*}
	 * @return the changed copy
	 */
	public EventQuery exclude(String... types) {
		return filter(filter.toBuilder().clearExcludeTypes().addAllExcludeTypes(List.of(types)).build());
	}

	/**
	 * Sets the complete filter.
	 *
	 * @param changed the filter
	 * @return the changed copy
	 */
	public EventQuery filter(EventFilter changed) {
		return new EventQuery(start, after, changed, options, ephemeralGaps);
	}

	/**
	 * Sets fidelity, original JSON and other options of the stream.
	 *
	 * @param changed the options
	 * @return the changed copy
	 */
	public EventQuery options(StreamOptions changed) {
		return new EventQuery(start, after, filter, changed, ephemeralGaps);
	}

	/**
	 * Also reports gaps of ephemeral events, such as the deltas of old turns.
	 *
	 * @return the changed copy
	 */
	public EventQuery withEphemeralGaps() {
		return new EventQuery(start, after, filter, options, true);
	}

	EventFilter filter() {
		return filter;
	}

	Position after() {
		return after;
	}

	/** The position to start after; null for none. */
	Position firstAfter(Position opened) {
		return after == null && start == Start.OPENED ? opened : after;
	}

	boolean reports(Gap gap) {
		return ephemeralGaps || !gap.isEphemeral();
	}

	/** The request that continues after a position; null for the start. */
	SubscribeRequest request(String sessionId, Position last, boolean callbacks) {
		SessionCursor.Builder cursor = SessionCursor.newBuilder().setSessionId(sessionId).setFilter(filter);
		if (last != null) {
			cursor.setAfter(last.toMessage());
		} else if (start == Start.NOW) {
			cursor.setStart(StreamStart.STREAM_START_END);
		}
		return SubscribeRequest.newBuilder().addSessions(cursor).setOptions(options).setCallbacks(callbacks).build();
	}

	/** The time without a frame after which the stream is broken. */
	Duration silence() {
		return silence(options);
	}

	/** Three times the heartbeat's interval, and not less than the default. */
	static Duration silence(StreamOptions options) {
		var asked = options.getHeartbeatInterval();
		Duration interval = options.hasHeartbeatInterval()
				? Duration.ofSeconds(asked.getSeconds(), asked.getNanos()) : Duration.ofSeconds(30);
		Duration silence = interval.multipliedBy(3);
		return silence.compareTo(Connection.SILENCE) > 0 ? silence : Connection.SILENCE;
	}
}
