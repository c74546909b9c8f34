package io.github.copilotgrpc;

import io.github.copilotgrpc.errors.CopilotException;
import java.util.Iterator;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A stream of values from the server. It is read once: as an {@link Iterable}, as a {@link #stream()}, or by a
 * subscriber of its {@link #publisher()}. Close it unless it was read to its end; closing ends a read that waits.
 *
 * <p>Iterators block, and throw a {@link CopilotException} if the stream fails. An interruption of the reading
 * thread ends the stream. A slow reader delays nothing but itself: up to 16 frames of the server wait for it in memory.
 *
 * @param <T> type of the values
 */
public final class ItemStream<T> implements Iterable<T>, AutoCloseable {
	private final Source<T> source;
	private final Executor executor;
	private final AtomicBoolean read = new AtomicBoolean();

	ItemStream(Source<T> source, Executor executor) {
		this.source = source;
		this.executor = executor;
	}

	/**
	 * Returns the values. Its methods block until the next value is there.
	 *
	 * @return the iterator
	 * @throws IllegalStateException the stream is being read
	 */
	@Override
	public Iterator<T> iterator() {
		begin();
		return new SourceIterator<>(source);
	}

	/**
	 * Returns the values as a sequential stream; closing it closes this stream.
	 *
	 * @return the stream
	 * @throws IllegalStateException the stream is being read
	 */
	public Stream<T> stream() {
		int properties = Spliterator.ORDERED | Spliterator.NONNULL;
		return StreamSupport.stream(Spliterators.spliteratorUnknownSize(iterator(), properties), false)
				.onClose(this::close);
	}

	/**
	 * Returns the values for one subscriber, which is called in threads of the client's executor. Cancelling the
	 * subscription closes this stream.
	 *
	 * @return the publisher; a second subscriber receives an {@link IllegalStateException}
	 */
	public Flow.Publisher<T> publisher() {
		return new SourcePublisher<>(source, executor, this::begin);
	}

	/** Ends the stream. Closing again does nothing. */
	@Override
	public void close() {
		source.close();
	}

	private void begin() {
		if (!read.compareAndSet(false, true)) {
			throw new IllegalStateException("the stream is read once");
		}
	}
}
