package io.github.copilotgrpc;

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
			ended = true; // also if waiting fails
			next = Futures.await(source.next());
			ended = next == null;
		}
		return next != null;
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
