package io.github.copilotgrpc;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.Consumer;

/** Tells a program about its connection: in order, in threads of its executor. Used in one context. */
final class ConnectionListener {
	private final Consumer<ConnectionEvent> listener;
	private final Executor executor;
	private CompletableFuture<Void> last = CompletableFuture.completedFuture(null);

	/** @param listener null for none */
	ConnectionListener(Consumer<ConnectionEvent> listener, Executor executor) {
		this.listener = listener;
		this.executor = executor;
	}

	void tell(ConnectionEvent event) {
		if (listener != null) {
			last = last.thenRunAsync(() -> listener.accept(event), executor).exceptionally(error -> {
				Log.error("the connection listener failed", Errors.unwrap(error));
				return null;
			});
		}
	}
}
