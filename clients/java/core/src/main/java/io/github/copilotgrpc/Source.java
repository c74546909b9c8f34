package io.github.copilotgrpc;

import java.util.concurrent.CompletableFuture;

/** Values that arrive one after another. Only one `next` may wait at a time. */
interface Source<T> {
	/** The next value; null at the end, and after `close`. Cancelling the future may end the source. */
	CompletableFuture<T> next();

	/** Ends the source. Safe for concurrent use. */
	void close();
}
