package io.github.copilotgrpc;

import com.google.protobuf.ByteString;
import io.github.copilotgrpc.bridge.v1.ReadEventRequest;
import io.github.copilotgrpc.bridge.v1.ReadEventResponse;
import io.github.copilotgrpc.bridge.v1.SessionServiceGrpc;
import io.github.copilotgrpc.bridge.v1.SubscribeResponse;
import java.util.concurrent.CompletableFuture;

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
		Source<StreamItem> items = new Flattened<>(
				subscribe(query, false), frame -> Cursor.items(frame, query));
		return new ItemStream<>(Cursor.until(closed, items), connection.executor());
	}

	/** All frames, also those about callbacks. */
	ItemStream<SubscribeResponse> frames(EventQuery query) {
		return new ItemStream<>(Cursor.until(closed, subscribe(query, true)), connection.executor());
	}

	private Source<SubscribeResponse> subscribe(EventQuery query, boolean callbacks) {
		return Cursor.frames(connection, sessionId, progress, query, query.firstAfter(opened), callbacks);
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
