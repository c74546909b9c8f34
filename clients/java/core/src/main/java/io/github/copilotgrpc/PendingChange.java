package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.Callback;

/** A change of the list of callbacks that wait in all sessions; see {@link CopilotClient#watchPending}. */
public sealed interface PendingChange permits PendingCallback, PendingEnd {
	/**
	 * Returns the callback, with its session, kind and request. The request of a very large one is left out: see {@code
	 * Callback.total_bytes} of the API.
	 *
	 * @return the callback
	 */
	Callback callback();

	/**
	 * Returns the kind of the callback.
	 *
	 * @return the kind
	 */
	default CallbackKind kind() {
		return CallbackKind.of(callback().getKind());
	}
}
