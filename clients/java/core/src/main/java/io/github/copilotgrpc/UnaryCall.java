package io.github.copilotgrpc;

import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import java.util.concurrent.CompletableFuture;

/** A call with one response. */
final class UnaryCall<Q, A> extends ClientCall.Listener<A> {
	private final ClientCall<Q, A> call;
	private final Progress progress;
	private final CompletableFuture<A> result = new CompletableFuture<>();
	private A response;

	/** @param progress receives the position in the trailers; null for none */
	UnaryCall(ClientCall<Q, A> call, Progress progress) {
		this.call = call;
		this.progress = progress;
		Futures.onCancel(result, () -> call.cancel("the caller cancelled the call", null));
	}

	CompletableFuture<A> start(Q request) {
		begin();
		call.sendMessage(request);
		call.halfClose();
		return result;
	}

	/** Starts a call whose requests the caller sends. */
	CompletableFuture<A> begin() {
		call.start(this, new Metadata());
		call.request(2);
		return result;
	}

	@Override
	public void onMessage(A message) {
		response = message;
	}

	@Override
	public void onClose(Status status, Metadata trailers) {
		if (!status.isOk()) {
			result.completeExceptionally(Errors.of(status, trailers));
		} else if (response == null) {
			result.completeExceptionally(Errors.of(Status.INTERNAL.withDescription("no response"), trailers));
		} else {
			if (progress != null) {
				progress.note(trailers);
			}
			result.complete(response);
		}
	}
}
