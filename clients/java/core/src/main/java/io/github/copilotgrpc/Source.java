package io.github.copilotgrpc;

import java.util.concurrent.CompletableFuture;

/** Values that arrive one after another. Only one `next` may wait at a time, and no `poll` beside it. */
interface Source<T> {
	/** The next value if it has arrived; else null, as at the end: `next` tells them apart. Never waits. */
	default T poll() {
		return null;
	}

	/** The next value; null at the end, and after `close`. Cancelling the future may end the source. */
	CompletableFuture<T> next();

	/** Ends the source like the cancellation of a future of `next`. */
	default void cancel() {
		close();
	}

	/** Ends the source. Safe for concurrent use. */
	void close();
}
