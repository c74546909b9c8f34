package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.CloseReason;
import io.github.copilotgrpc.bridge.v1.EventBatch;
import io.github.copilotgrpc.bridge.v1.EventServiceGrpc;
import io.github.copilotgrpc.bridge.v1.ListEventsRequest;
import io.github.copilotgrpc.bridge.v1.ListEventsResponse;
import io.github.copilotgrpc.bridge.v1.SessionServiceGrpc;
import io.github.copilotgrpc.bridge.v1.SubscribeResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/** Follows the position in the frames of one session, over one stream after another, and drops duplicates. */
final class Cursor {
	private final Progress progress;
	private Position after; // null before the first position; changed by one read at a time

	Cursor(Progress progress, Position after) {
		this.progress = progress;
		this.after = after;
	}

	/** What the frames of a session contain, until it is over. */
	static <T> Source<T> read(
			Connection connection, String sessionId, Progress progress, EventQuery query, Position start,
			boolean callbacks, Function<SubscribeResponse, List<T>> values) {
		Cursor cursor = new Cursor(progress, start);
		Source<SubscribeResponse> frames = new Resuming<>(connection,
				() -> connection.stream(EventServiceGrpc.getSubscribeMethod(),
						query.request(sessionId, cursor.after, callbacks), query.silence()),
				Cursor::classify);
		return new Flattened<>(frames, frame -> {
			List<SubscribeResponse> news = cursor.news(frame);
			return news.isEmpty() ? List.of() : values.apply(news.get(0));
		});
	}

	private static Resuming.Step classify(SubscribeResponse frame) {
		return switch (frame.getFrameCase()) {
			case GO_AWAY -> Resuming.Step.RECONNECT;
			case CLOSED -> frame.getClosed().getReason() == CloseReason.CLOSE_REASON_DRAINING
					? Resuming.Step.RECONNECT : Resuming.Step.LAST;
			default -> Resuming.Step.DELIVER;
		};
	}

	/** The frame without what has been read before; empty if nothing is left. Moves the cursor. */
	List<SubscribeResponse> news(SubscribeResponse frame) {
		SubscribeResponse fresh = frame;
		if (frame.hasEvents()) {
			List<io.github.copilotgrpc.bridge.v1.Event> events = frame.getEvents().getEventsList();
			int read = 0;
			while (after != null && read < events.size()
					&& Position.of(events.get(read).getPosition()).compareTo(after) <= 0) {
				read++;
			}
			if (read == events.size()) {
				return List.of();
			}
			if (read > 0) {
				EventBatch rest = EventBatch.newBuilder().addAllEvents(events.subList(read, events.size())).build();
				fresh = frame.toBuilder().setEvents(rest).build();
			}
			move(Position.of(events.get(events.size() - 1).getPosition()));
		}
		if (frame.hasResumeAfter()) {
			move(Position.of(frame.getResumeAfter()));
		}
		return frame.getFrameCase() == SubscribeResponse.FrameCase.FRAME_NOT_SET ? List.of() : List.of(fresh);
	}

	private void move(Position seen) {
		if (after == null || seen.compareTo(after) > 0) {
			after = seen;
			progress.note(seen);
		}
	}

	/** The events and the gaps in a frame. */
	static List<StreamItem> items(SubscribeResponse frame, EventQuery query) {
		if (frame.hasGap()) {
			Gap gap = new Gap(frame.getGap());
			return query.reports(gap) ? List.of(gap) : List.of();
		}
		List<StreamItem> items = new ArrayList<>(frame.getEvents().getEventsCount());
		frame.getEvents().getEventsList().forEach(event -> items.add(new Event(event)));
		return items;
	}

	/** The events that the journal has. */
	static Source<StreamItem> history(Connection connection, String sessionId, Progress progress, EventQuery query) {
		Pages<ListEventsResponse> pages = new Pages<>(token -> {
			ListEventsRequest.Builder request = ListEventsRequest.newBuilder()
					.setSessionId(sessionId).setFilter(query.filter()).setPageToken(token);
			if (query.after() != null) {
				request.setAfter(query.after().toMessage());
			}
			return connection.unary(SessionServiceGrpc.getListEventsMethod(), request.build(), progress);
		}, ListEventsResponse::getNextPageToken);
		return new Flattened<>(pages, page -> {
			List<StreamItem> items = new ArrayList<>();
			if (page.hasGap() && query.reports(new Gap(page.getGap()))) {
				items.add(new Gap(page.getGap()));
			}
			page.getEventsList().forEach(event -> items.add(new Event(event)));
			return items;
		});
	}

	/** Ends a source together with a session. */
	static <T> Source<T> until(CompletableFuture<?> closed, Source<T> source) {
		closed.whenComplete((reason, error) -> source.close());
		return source;
	}
}
