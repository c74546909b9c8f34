package io.github.copilotgrpc;

import io.github.copilotgrpc.errors.ConnectionLostException;
import io.github.copilotgrpc.errors.CopilotException;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Reads the responses of one call, one at a time. A read that takes longer than the silence fails as a broken
 * connection; the time in which nothing asks for the next response does not count. Safe for concurrent use, with
 * one read at a time.
 */
final class Reader<A> extends ClientCall.Listener<A> implements Source<A> {
	private final ScheduledExecutorService timer;
	private final Duration silence;
	private final ReentrantLock lock = new ReentrantLock();
	private ClientCall<?, A> call;
	private CompletableFuture<A> waiting;
	private Future<?> alarm;
	private boolean ended;
	private CopilotException error;

	Reader(ScheduledExecutorService timer, Duration silence) {
		this.timer = timer;
		this.silence = silence;
	}

	<Q> void start(ClientCall<Q, A> opened, Q request) {
		call = opened;
		opened.start(this, new Metadata());
		opened.sendMessage(request);
		opened.halfClose();
	}

	/** The next response; null at the end. */
	CompletableFuture<A> read() {
		lock.lock();
		try {
			if (ended) {
				return error == null
						? CompletableFuture.completedFuture(null)
						: CompletableFuture.failedFuture(error);
			}
			if (waiting != null) {
				throw new IllegalStateException("another read waits");
			}
			waiting = new CompletableFuture<>();
			alarm = timer.schedule(
					() -> cancel(new ConnectionLostException("the server is silent")),
					silence.toNanos(), TimeUnit.NANOSECONDS);
			call.request(1);
			return waiting;
		} finally {
			lock.unlock();
		}
	}

	@Override
	public CompletableFuture<A> next() {
		return read();
	}

	/** Ends the call. A read that waits gets the end. */
	@Override
	public void close() {
		cancel(null);
	}

	@Override
	public void onMessage(A message) {
		CompletableFuture<A> read = take();
		if (read != null) {
			read.complete(message);
		}
	}

	@Override
	public void onClose(Status status, Metadata trailers) {
		end(status.isOk() ? null : Errors.of(status, trailers));
	}

	/** Ends a call that may continue. A closed call is not cancelled: it may be closed while it starts. */
	private void cancel(CopilotException cause) {
		if (end(cause)) {
			call.cancel("the reader ended", cause);
		}
	}

	/** Ends the reading. Returns false if it had ended. */
	private boolean end(CopilotException cause) {
		lock.lock();
		try {
			if (ended) {
				return false;
			}
			ended = true;
			error = cause;
		} finally {
			lock.unlock();
		}
		CompletableFuture<A> read = take();
		if (read != null && cause != null) {
			read.completeExceptionally(cause);
		} else if (read != null) {
			read.complete(null);
		}
		return true;
	}

	private CompletableFuture<A> take() {
		lock.lock();
		try {
			CompletableFuture<A> read = waiting;
			waiting = null;
			if (alarm != null) {
				alarm.cancel(false);
				alarm = null;
			}
			return read;
		} finally {
			lock.unlock();
		}
	}
}
