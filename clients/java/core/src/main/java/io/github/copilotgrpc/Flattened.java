package io.github.copilotgrpc;

import java.util.ArrayDeque;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/** The values in the frames of another source. One read at a time. */
final class Flattened<F, T> implements Source<T> {
	private final Source<F> frames;
	private final Function<F, List<T>> values;
	private final Queue<T> ready = new ArrayDeque<>();
	private volatile boolean closed;

	Flattened(Source<F> frames, Function<F, List<T>> values) {
		this.frames = frames;
		this.values = values;
	}

	@Override
	public T poll() {
		while (!closed) {
			T value = ready.poll();
			if (value != null) {
				return value;
			}
			F frame = frames.poll();
			if (frame == null) {
				return null;
			}
			take(frame);
		}
		return null;
	}

	/** Adds the values of a frame. Closes the source if there is an error. */
	private void take(F frame) {
		try {
			ready.addAll(values.apply(frame));
		} catch (RuntimeException e) {
			close();
			throw e;
		}
	}

	@Override
	public CompletableFuture<T> next() {
		T first = closed ? null : ready.poll();
		if (first != null) {
			return CompletableFuture.completedFuture(first);
		}
		CompletableFuture<T> result = new CompletableFuture<>();
		Futures.onCancel(result, this::close);
		fill(result);
		return result;
	}

	private void fill(CompletableFuture<T> result) {
		frames.next().whenComplete((frame, error) -> {
			if (error != null) {
				result.completeExceptionally(Errors.unwrap(error));
				return;
			}
			if (frame == null || closed) {
				result.complete(null);
				return;
			}
			T value;
			try {
				take(frame);
				value = poll(); // further frames without a recursion
			} catch (RuntimeException e) {
				result.completeExceptionally(e);
				return;
			}
			if (value == null) {
				fill(result);
			} else {
				result.complete(value);
			}
		});
	}

	@Override
	public void close() {
		closed = true;
		frames.close();
	}
}
