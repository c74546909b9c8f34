package io.github.copilotgrpc;

import io.github.copilotgrpc.errors.ConnectionLostException;
import io.github.copilotgrpc.errors.CopilotException;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Predicate;

/**
 * Reads the responses of one call. Up to {@link #AHEAD} responses wait for a slow reader; gRPC's flow control holds back
 * the rest. A read that takes longer than the silence fails as a broken connection; the time in which nothing asks for
 * the next response does not count. Safe for concurrent use, with one read at a time.
 */
final class Reader<A> extends ClientCall.Listener<A> implements Source<A> {
	/** Responses that are requested before they are read. A request for each would wake gRPC's thread for each. */
	static final int AHEAD = 16;

	private final ScheduledExecutorService timer;
	private final long silence; // in nanoseconds
	private final ReentrantLock lock = new ReentrantLock();
	private final Queue<A> ready = new ArrayDeque<>(AHEAD);
	private ClientCall<?, A> call;
	private int taken; // responses that were read and not yet requested again
	private CompletableFuture<A> waiting;
	private long waitingSince; // by System.nanoTime
	private Future<?> alarm; // null unless scheduled
	private boolean ended;
	private CopilotException error;

	Reader(ScheduledExecutorService timer, Duration silence) {
		this.timer = timer;
		this.silence = silence.toNanos();
	}

	<Q> void start(ClientCall<Q, A> opened, Q request) {
		call = opened;
		opened.start(this, new Metadata());
		opened.request(AHEAD);
		opened.sendMessage(request);
		opened.halfClose();
	}

	@Override
	public A poll() {
		return pollIf(message -> true);
	}

	/** Takes the next response if it is there and meets the condition; else null. */
	A pollIf(Predicate<A> condition) {
		A message;
		int more;
		lock.lock();
		try {
			message = ready.peek();
			if (message == null || !condition.test(message)) {
				return null;
			}
			ready.remove();
			more = countTaken();
		} finally {
			lock.unlock();
		}
		request(more);
		return message;
	}

	@Override
	public CompletableFuture<A> next() {
		A message;
		int more;
		lock.lock();
		try {
			message = ready.poll();
			if (message == null) {
				return await();
			}
			more = countTaken();
		} finally {
			lock.unlock();
		}
		request(more);
		return CompletableFuture.completedFuture(message);
	}

	/** Lets a read wait for the next response, or gives it the end. The caller holds the lock. */
	private CompletableFuture<A> await() {
		if (ended) {
			return error == null
					? CompletableFuture.completedFuture(null)
					: CompletableFuture.failedFuture(error);
		}
		if (waiting != null) {
			throw new IllegalStateException("another read waits");
		}
		waiting = new CompletableFuture<>();
		waitingSince = System.nanoTime();
		if (alarm == null) {
			schedule(silence);
		}
		return waiting;
	}

	/** Counts a response that was read. Returns how many to request. The caller holds the lock. */
	private int countTaken() {
		taken++;
		if (taken < AHEAD / 2) {
			return 0;
		}
		int more = taken;
		taken = 0;
		return more;
	}

	/** Requests responses. The caller does not hold the lock, because gRPC may call back. */
	private void request(int more) {
		if (more > 0) {
			call.request(more);
		}
	}

	/** Ends the call. A read that waits gets the end, and so does the next one. */
	@Override
	public void close() {
		cancel(null);
	}

	@Override
	public void onMessage(A message) {
		CompletableFuture<A> read;
		int more;
		lock.lock();
		try {
			if (ended) {
				return;
			}
			read = waiting;
			if (read == null) {
				ready.add(message);
				return;
			}
			waiting = null;
			more = countTaken();
		} finally {
			lock.unlock();
		}
		request(more);
		read.complete(message);
	}

	@Override
	public void onClose(Status status, Metadata trailers) {
		end(status.isOk() ? null : Errors.of(status, trailers), false);
	}

	/** Ends a call that may continue. A closed call is not cancelled: it may be closed while it starts. */
	private void cancel(CopilotException cause) {
		if (end(cause, true)) {
			call.cancel("the reader ended", cause);
		}
	}

	/**
	 * Ends the reading.
	 *
	 * @param drop whether responses that were not read are dropped
	 * @return false if it had ended
	 */
	private boolean end(CopilotException cause, boolean drop) {
		CompletableFuture<A> read;
		lock.lock();
		try {
			if (drop) {
				ready.clear();
			}
			if (ended) {
				return false;
			}
			ended = true;
			error = cause;
			read = waiting;
			waiting = null;
			if (alarm != null) {
				alarm.cancel(false);
			}
		} finally {
			lock.unlock();
		}
		if (read != null && cause != null) {
			read.completeExceptionally(cause);
		} else if (read != null) {
			read.complete(null);
		}
		return true;
	}

	/** Schedules the alarm. One alarm serves all reads within a silence, because scheduling wakes the timer's thread. */
	private void schedule(long delay) {
		alarm = timer.schedule(this::check, delay, TimeUnit.NANOSECONDS);
	}

	/** Ends the call if a read has waited for a silence. */
	private void check() {
		lock.lock();
		try {
			alarm = null;
			if (ended || waiting == null) {
				return; // the next read that waits schedules the alarm
			}
			long left = silence - (System.nanoTime() - waitingSince);
			if (left > 0) {
				schedule(left);
				return;
			}
		} finally {
			lock.unlock();
		}
		cancel(new ConnectionLostException("the server is silent"));
	}
}
