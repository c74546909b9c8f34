package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.RunRequest;
import io.github.copilotgrpc.bridge.v1.RunResponse;
import io.github.copilotgrpc.bridge.v1.SessionServiceGrpc;
import io.github.copilotgrpc.cli.v1.SessionEvent;
import io.github.copilotgrpc.errors.ConnectionLostException;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Flow;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;

/**
 * A turn that is read while it happens: as events, as text ({@link #deltas()}), or only its {@link #outcome()}.
 *
 * <p>The prompt is sent when reading starts, once, however often the stream breaks. A turn is read once. Closing it
 * ends the reading, and so does an interruption of the reading thread; the turn continues in the server unless the
 * prompt says otherwise.
 */
public final class Turn implements Iterable<StreamItem>, AutoCloseable {
	private final CopilotSession session;
	private final Prompt prompt;
	private final AtomicReference<Source<StreamItem>> source = new AtomicReference<>();
	private final CompletableFuture<Outcome> outcome = new CompletableFuture<>();
	private volatile boolean closed;
	private volatile String messageId = "";

	Turn(CopilotSession session, Prompt prompt) {
		this.session = session;
		this.prompt = prompt.traced();
	}

	/**
	 * Returns the events. Its methods block until the next event is there.
	 *
	 * @return the iterator
	 * @throws IllegalStateException the turn is being read
	 */
	@Override
	public Iterator<StreamItem> iterator() {
		return items().iterator();
	}

	/**
	 * Returns the events as a sequential stream.
	 *
	 * @return the stream
	 * @throws IllegalStateException the turn is being read
	 */
	public Stream<StreamItem> stream() {
		return items().stream();
	}

	/**
	 * Returns the events for one subscriber, which is called in threads of the client's executor. Cancelling the
	 * subscription ends the reading.
	 *
	 * @return the publisher
	 * @throws IllegalStateException the turn is being read
	 */
	public Flow.Publisher<StreamItem> publisher() {
		return items().publisher();
	}

	/**
	 * Returns the agent's text as it arrives, in pieces. A message that was not streamed is one piece.
	 *
	 * @return the pieces
	 * @throws IllegalStateException the turn is being read
	 */
	public ItemStream<String> deltas() {
		Set<String> streamed = new HashSet<>();
		return new ItemStream<>(new Flattened<>(open(), item -> text(item, streamed)), session.connection().executor());
	}

	/**
	 * Waits for the end of the turn, and reads its rest if nothing else does.
	 *
	 * @return the outcome
	 * @throws io.github.copilotgrpc.errors.CopilotException the turn was not read to its end
	 */
	public Outcome outcome() {
		readRest();
		return Futures.await(outcome.copy());
	}

	/**
	 * Waits for the end of the turn without blocking, and reads its rest if nothing else does.
	 *
	 * @return completes with the outcome
	 */
	public CompletableFuture<Outcome> outcomeAsync() {
		readRest();
		CompletableFuture<Outcome> published = Futures.published(outcome.copy(), session.connection().executor());
		Futures.onCancel(published, this::cancelled);
		return published;
	}

	/** Ends the reading. Closing again, or after the turn's end, does nothing. */
	@Override
	public void close() {
		closed = true;
		Source<StreamItem> open = source.get();
		if (open != null) {
			open.close();
		}
		outcome.completeExceptionally(new ConnectionLostException("the turn was not read to its end"));
	}

	private ItemStream<StreamItem> items() {
		return new ItemStream<>(open(), session.connection().executor());
	}

	private void readRest() {
		if (source.get() == null) {
			try {
				drain(open());
			} catch (IllegalStateException e) {
				// Another thread has just begun to read.
			}
		}
	}

	private static void drain(Source<StreamItem> items) {
		while (items.poll() != null) {
			// The outcome is in the frames.
		}
		items.next().thenAccept(item -> {
			if (item != null) {
				drain(items);
			}
		});
	}

	private Source<StreamItem> open() {
		Cursor cursor = new Cursor(session.progress(), null);
		Source<StreamItem> items = new Flattened<>(new Frames(), frame -> take(frame, cursor));
		Source<StreamItem> whole = new Source<>() {
			@Override
			public StreamItem poll() {
				return items.poll();
			}

			@Override
			public void cancel() {
				cancelled();
			}

			@Override
			public CompletableFuture<StreamItem> next() {
				CompletableFuture<StreamItem> next = items.next();
				next.whenComplete((item, error) -> {
					if (next.isCancelled()) {
						cancelled();
					} else if (error != null) {
						outcome.completeExceptionally(Errors.unwrap(error));
					} else if (item == null) {
						outcome.completeExceptionally(
								new ConnectionLostException("the turn was not read to its end"));
					}
				});
				return next;
			}

			@Override
			public void close() {
				items.close();
			}
		};
		if (!source.compareAndSet(null, whole)) {
			throw new IllegalStateException("the turn is read once");
		}
		if (closed) {
			whole.close();
		}
		return whole;
	}

	private void cancelled() {
		boolean running = !outcome.isDone();
		close();
		if (running && prompt.isAbortedOnCancel()) {
			session.abortDetached();
		}
	}

	private List<StreamItem> take(RunResponse frame, Cursor cursor) {
		switch (frame.getFrameCase()) {
			case PROGRESS -> Log.info("waiting for the server", frame.getProgress().getDetail());
			case STARTED -> {
				messageId = frame.getStarted().getMessageId();
				session.progress().note(frame.getStarted().getPosition());
			}
			case OUTCOME -> {
				session.progress().note(frame.getOutcome().getEndPosition());
				outcome.complete(Outcome.of(messageId, frame.getOutcome()));
			}
			case STREAM -> {
				return cursor.news(frame.getStream()).stream()
						.flatMap(news -> Cursor.items(news, EventQuery.all()).stream()).toList();
			}
			default -> { } // newer than this library
		}
		return List.of();
	}

	private static Resuming.Step classify(RunResponse frame) {
		return switch (frame.getFrameCase()) {
			case OUTCOME -> Resuming.Step.LAST;
			case STREAM -> frame.getStream().hasGoAway() ? Resuming.Step.RECONNECT : Resuming.Step.DELIVER;
			default -> Resuming.Step.DELIVER;
		};
	}

	private static List<String> text(StreamItem item, Set<String> streamed) {
		if (!(item instanceof Event event) || !event.message().getEvent().getAgentId().isEmpty()) {
			return List.of(); // only the session's own agent
		}
		SessionEvent data = event.message().getEvent();
		if (data.hasAssistantMessageDelta()) {
			streamed.add(data.getAssistantMessageDelta().getMessageId());
			return List.of(data.getAssistantMessageDelta().getDeltaContent());
		}
		boolean whole = data.hasAssistantMessage() && !streamed.contains(data.getAssistantMessage().getMessageId());
		String content = whole ? data.getAssistantMessage().getContent() : "";
		return content.isEmpty() ? List.of() : List.of(content);
	}

	/** The frames of the turn. The first read makes the request, which may have to read files. */
	private final class Frames implements Source<RunResponse> {
		private volatile CompletableFuture<Source<RunResponse>> frames;

		@Override
		public RunResponse poll() {
			CompletableFuture<Source<RunResponse>> opened = frames;
			return opened == null || !opened.isDone() || opened.isCompletedExceptionally() ? null : opened.join().poll();
		}

		@Override
		public CompletableFuture<RunResponse> next() {
			if (frames == null) {
				frames = CompletableFuture.supplyAsync(this::open, session.connection().executor());
			}
			CompletableFuture<RunResponse> result = new CompletableFuture<>();
			Futures.relay(frames.thenCompose(Source::next), result);
			Futures.onCancel(result, this::close);
			return result;
		}

		@Override
		public void close() {
			CompletableFuture<Source<RunResponse>> opened = frames;
			if (opened != null) {
				opened.thenAccept(Source::close);
			}
		}

		private Source<RunResponse> open() {
			RunRequest request = RunRequest.newBuilder().setRequestId(prompt.id()).setSessionId(session.id())
					.setPrompt(Sending.messageOf(prompt, true)).build();
			return new Resuming<>(session.connection(),
					() -> session.connection().stream(
							SessionServiceGrpc.getRunMethod(), request, EventQuery.silence(request.getOptions())),
					Turn::classify);
		}
	}
}
