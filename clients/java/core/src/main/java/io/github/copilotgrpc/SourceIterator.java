package io.github.copilotgrpc;

import io.github.copilotgrpc.errors.CallInterruptedException;
import java.util.Iterator;
import java.util.NoSuchElementException;

/** Waits for the values of a source. */
final class SourceIterator<T> implements Iterator<T> {
	private final Source<T> source;
	private T next;
	private boolean ended;

	SourceIterator(Source<T> source) {
		this.source = source;
	}

	@Override
	public boolean hasNext() {
		if (next == null && !ended) {
			ended = true; // also if reading fails
			next = read();
			ended = next == null;
		}
		return next != null;
	}

	private T read() {
		if (Thread.currentThread().isInterrupted()) { // as a wait, which there is none of while values arrive
			source.cancel();
			throw new CallInterruptedException(new InterruptedException());
		}
		T ready = source.poll();
		return ready == null ? Futures.await(source.next()) : ready;
	}

	@Override
	public T next() {
		if (!hasNext()) {
			throw new NoSuchElementException();
		}
		T value = next;
		next = null;
		return value;
	}
}
