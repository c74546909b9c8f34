package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.Answer;
import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.bridge.v1.CallbackServiceGrpc;
import io.github.copilotgrpc.bridge.v1.ResolveRequest;
import io.github.copilotgrpc.errors.CallbackResolvedException;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;

/** A callback that waits for an answer. It is reported once, however often the stream breaks. */
public final class PendingCallback implements PendingChange {
	private final Connection connection;
	private final Callback callback;

	PendingCallback(Connection connection, Callback callback) {
		this.connection = connection;
		this.callback = callback;
	}

	@Override
	public Callback callback() {
		return callback;
	}

	/**
	 * Answers the callback.
	 *
	 * @param answer see {@link Answers}
	 * @throws CallbackResolvedException another caller was first, or the callback ended in another way
	 */
	public void answer(Answer answer) {
		Futures.await(resolve(connection, callback.getSessionId(), callback.getCallbackId(), answer, null));
	}

	/** Answers a callback, with a request id that makes it safe to repeat the call. */
	static CompletableFuture<?> resolve(
			Connection connection, String sessionId, String callbackId, Answer answer, Progress progress) {
		ResolveRequest request = ResolveRequest.newBuilder().setSessionId(sessionId).setCallbackId(callbackId)
				.setAnswer(answer).setRequestId(UUID.randomUUID().toString()).build();
		return connection.repeat(connection.callPolicy(),
				() -> connection.unary(CallbackServiceGrpc.getResolveMethod(), request, progress));
	}

	@Override
	public String toString() {
		return "PendingCallback[" + callback.getCallbackId() + "]";
	}
}
