package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.bridge.v1.CallbackResolved;
import io.github.copilotgrpc.bridge.v1.CallbackServiceGrpc;
import io.github.copilotgrpc.bridge.v1.StreamOptions;
import io.github.copilotgrpc.bridge.v1.WatchPendingRequest;
import io.github.copilotgrpc.bridge.v1.WatchPendingResponse;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * The callbacks that wait. Turns what the server sends into changes of the list, also over several streams. Its methods
 * are called by one read at a time.
 */
final class Inbox {
	private record Key(String sessionId, String callbackId) { }

	private final Connection connection;
	private final Map<Key, Callback> waiting = new LinkedHashMap<>();
	/** Those that a new stream, or one after a reset, has not confirmed yet. */
	private final Set<Key> unconfirmed = new HashSet<>();

	Inbox(Connection connection) {
		this.connection = connection;
	}

	/** The changes, over one stream after another. */
	static Source<PendingChange> watch(Connection connection, PendingQuery query) {
		WatchPendingRequest request = query.request(connection.name());
		Inbox inbox = new Inbox(connection);
		Source<WatchPendingResponse> frames = new Resuming<>(connection, () -> {
			inbox.restart();
			return connection.stream(CallbackServiceGrpc.getWatchPendingMethod(), request,
					EventQuery.silence(StreamOptions.getDefaultInstance()));
		}, frame -> Resuming.Step.DELIVER);
		return new Flattened<>(frames, inbox::take);
	}

	/** Notes that the server lists all callbacks again. */
	private void restart() {
		unconfirmed.clear();
		unconfirmed.addAll(waiting.keySet());
	}

	/** The changes of the list. */
	private List<PendingChange> take(WatchPendingResponse response) {
		List<PendingChange> changes = new ArrayList<>();
		switch (response.getChangeCase()) {
			case REQUESTED -> {
				Callback callback = response.getRequested();
				Key key = new Key(callback.getSessionId(), callback.getCallbackId());
				unconfirmed.remove(key);
				if (waiting.putIfAbsent(key, callback) == null) {
					changes.add(new PendingCallback(connection, callback));
				}
			}
			case RESOLVED -> {
				CallbackResolved resolved = response.getResolved().getResolved();
				Key key = new Key(response.getResolved().getSessionId(), resolved.getCallbackId());
				end(key, Optional.of(resolved), changes);
			}
			case UNMATCHED -> {
				String session = response.getUnmatched().getSessionId();
				for (Key key : List.copyOf(waiting.keySet())) {
					if (key.sessionId().equals(session)) {
						end(key, Optional.empty(), changes);
					}
				}
			}
			case RESET -> restart();
			case CAUGHT_UP -> {
				for (Key key : List.copyOf(unconfirmed)) {
					end(key, Optional.empty(), changes);
				}
			}
			default -> { } // a heartbeat, or newer than this library
		}
		return changes;
	}

	private void end(Key key, Optional<CallbackResolved> resolved, List<PendingChange> changes) {
		unconfirmed.remove(key);
		Callback callback = waiting.remove(key);
		if (callback != null) {
			changes.add(new PendingEnd(callback, resolved));
		}
	}
}
