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

	void tell(String sessionId, ConnectionEvent event) {
		if (listener != null) {
			last = last.thenRunAsync(() -> listener.accept(event), executor).exceptionally(error -> {
				Log.failed("connection listener", sessionId, "none", Errors.unwrap(error), false);
				return null;
			});
		}
	}
}
