package io.github.copilotgrpc;

import com.google.protobuf.ByteString;
import io.github.copilotgrpc.bridge.v1.ReadEventRequest;
import io.github.copilotgrpc.bridge.v1.ReadEventResponse;
import io.github.copilotgrpc.bridge.v1.SessionServiceGrpc;
import io.github.copilotgrpc.bridge.v1.SubscribeResponse;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/**
 * Reads the events of a session.
 *
 * @param opened where the program opened the session; null for the first event
 * @param closed ends the streams when it completes
 */
record Journal(
		Connection connection, String sessionId, Progress progress, Position opened, CompletableFuture<?> closed) {
	/** The events and the gaps, from the past and live. */
	ItemStream<StreamItem> events(EventQuery query) {
		return subscribe(query, false, frame -> Cursor.items(frame, query));
	}

	/** All frames, also those about callbacks. */
	ItemStream<SubscribeResponse> frames(EventQuery query) {
		return subscribe(query, true, List::of);
	}

	private <T> ItemStream<T> subscribe(
			EventQuery query, boolean callbacks, Function<SubscribeResponse, List<T>> values) {
		Source<T> source = Cursor.read(
				connection, sessionId, progress, query, query.firstAfter(opened), callbacks, values);
		return new ItemStream<>(Cursor.until(closed, source), connection.executor());
	}

	/** The events that the journal has. */
	ItemStream<StreamItem> history(EventQuery query) {
		return new ItemStream<>(Cursor.history(connection, sessionId, progress, query), connection.executor());
	}

	/** The whole JSON of an event. */
	CompletableFuture<ByteString> read(Position position) {
		ReadEventRequest request =
				ReadEventRequest.newBuilder().setSessionId(sessionId).setPosition(position.toMessage()).build();
		return connection.readAll(
				SessionServiceGrpc.getReadEventMethod(), request, ReadEventResponse::getJsonChunk);
	}
}
