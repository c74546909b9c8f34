package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.CallbackServiceGrpc;
import io.github.copilotgrpc.bridge.v1.EventServiceGrpc;
import io.github.copilotgrpc.bridge.v1.ListPendingRequest;
import io.github.copilotgrpc.bridge.v1.ListPendingResponse;
import io.github.copilotgrpc.bridge.v1.ListSessionsRequest;
import io.github.copilotgrpc.bridge.v1.ListSessionsResponse;
import io.github.copilotgrpc.bridge.v1.SessionServiceGrpc;
import io.github.copilotgrpc.bridge.v1.StreamOptions;
import io.github.copilotgrpc.bridge.v1.WatchSessionsRequest;
import io.github.copilotgrpc.bridge.v1.WatchSessionsResponse;
import java.time.Duration;
import java.util.List;

/** Lists and watches what all sessions of a caller have. */
record Lists(Connection connection) {
	ItemStream<SessionInfo> sessions(ListSessionsRequest request) {
		Pages<ListSessionsResponse> pages = new Pages<>(
				token -> connection.unary(SessionServiceGrpc.getListSessionsMethod(),
						request.toBuilder().setPageToken(token).build(), null),
				ListSessionsResponse::getNextPageToken);
		return stream(new Flattened<>(
				pages, page -> page.getSessionsList().stream().map(SessionInfo::new).toList()));
	}

	ItemStream<PendingCallback> pending() {
		Pages<ListPendingResponse> pages = new Pages<>(
				token -> connection.unary(CallbackServiceGrpc.getListPendingMethod(),
						ListPendingRequest.newBuilder().setPageToken(token).build(), null),
				ListPendingResponse::getNextPageToken);
		return stream(new Flattened<>(pages, page -> page.getCallbacksList().stream()
				.map(callback -> new PendingCallback(connection, callback)).toList()));
	}

	/** Changes without heartbeats, over one stream after another. */
	ItemStream<SessionChange> changes(WatchSessionsRequest request) {
		StreamOptions.Builder options = StreamOptions.newBuilder();
		if (request.hasHeartbeatInterval()) {
			options.setHeartbeatInterval(request.getHeartbeatInterval());
		}
		Duration silence = EventQuery.silence(options.build());
		Source<WatchSessionsResponse> changes = new Resuming<>(connection,
				() -> connection.stream(EventServiceGrpc.getWatchSessionsMethod(), request, silence),
				change -> change.getChange() == io.github.copilotgrpc.bridge.v1.SessionChange.SESSION_CHANGE_HEARTBEAT
						? Resuming.Step.SKIP : Resuming.Step.DELIVER);
		return stream(new Flattened<>(changes, change -> List.of(new SessionChange(change))));
	}

	private <T> ItemStream<T> stream(Source<T> source) {
		return new ItemStream<>(source, connection.executor());
	}
}
