package io.github.copilotgrpc;

import io.github.copilotgrpc.errors.ConnectionLostException;
import io.github.copilotgrpc.errors.CopilotException;
import io.grpc.SynchronizationContext;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.Supplier;

/** Reads frames over one stream after another. */
final class Resuming<A> implements Source<A> {
	/** What a frame means for its stream. */
	enum Step {
		/** The frame is for the reader. */
		DELIVER,
		/** The frame is not for the reader. */
		SKIP,
		/** The server asks for a new stream. */
		RECONNECT,
		/** The frame is the last one for the reader. */
		LAST
	}

	private final Connection connection;
	private final Supplier<Reader<A>> open;
	private final Function<A, Step> classify;
	private final Backoff backoff;
	// Guards the fields below: only its tasks use them.
	private final SynchronizationContext sync = new SynchronizationContext((thread, error) -> {
		Log.error("reading a stream failed", error);
		finish(Errors.of(error));
	});
	private Reader<A> reader;
	/** The reader after its first frame, for `poll`; null between streams. Set in the context, read without it. */
	private volatile Reader<A> delivering;
	private CompletableFuture<A> result;
	private SynchronizationContext.ScheduledHandle pause;
	private boolean ended;

	Resuming(Connection connection, Supplier<Reader<A>> open, Function<A, Step> classify) {
		this.connection = connection;
		this.open = open;
		this.classify = classify;
		this.backoff = new Backoff(connection.reconnect());
	}

	/** Takes a frame only if it is for the reader. Any other one stays for `next`, which acts on it in the context. */
	@Override
	public A poll() {
		Reader<A> current = delivering;
		return current == null ? null : current.pollIf(frame -> classify.apply(frame) == Step.DELIVER);
	}

	@Override
	public CompletableFuture<A> next() {
		CompletableFuture<A> next = new CompletableFuture<>();
		Futures.onCancel(next, this::close);
		sync.execute(() -> {
			if (ended) {
				next.complete(null);
			} else if (result != null) {
				next.completeExceptionally(new IllegalStateException("another read waits"));
			} else {
				result = next;
				read();
			}
		});
		return next;
	}

	@Override
	public void close() {
		sync.execute(() -> finish(null));
	}

	private void read() {
		if (reader == null) {
			reader = open.get();
		}
		Reader<A> current = reader;
		current.next().whenComplete((frame, error) -> sync.execute(() -> {
			if (ended || reader != current) {
				return;
			}
			if (error != null) {
				broken(Errors.of(error));
			} else if (frame == null) {
				broken(new ConnectionLostException("the server ended the stream"));
			} else {
				take(frame);
			}
		}));
	}

	private void take(A frame) {
		backoff.reset();
		switch (classify.apply(frame)) {
			case SKIP -> read();
			case RECONNECT -> broken(new ConnectionLostException("the server asks to reconnect"));
			case LAST -> {
				complete(frame);
				finish(null);
			}
			case DELIVER -> {
				delivering = reader;
				complete(frame);
			}
		}
	}

	private void complete(A frame) {
		CompletableFuture<A> taken = result;
		result = null;
		taken.complete(frame);
	}

	private void broken(CopilotException cause) {
		reader.close();
		reader = null;
		delivering = null;
		Optional<Duration> delay = cause.isBroken() ? backoff.next(cause) : Optional.empty();
		if (delay.isEmpty()) {
			finish(cause);
		} else {
			pause = sync.schedule(this::read, delay.get().toNanos(), TimeUnit.NANOSECONDS, connection.timer());
		}
	}

	private void finish(CopilotException error) {
		if (ended) {
			return;
		}
		ended = true;
		delivering = null;
		if (pause != null) {
			pause.cancel();
		}
		if (reader != null) {
			reader.close();
		}
		if (result != null && error != null) {
			result.completeExceptionally(error);
		} else if (result != null) {
			result.complete(null);
		}
		result = null;
	}
}
