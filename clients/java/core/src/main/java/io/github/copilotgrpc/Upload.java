package io.github.copilotgrpc;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import io.github.copilotgrpc.errors.CallInterruptedException;
import io.grpc.ClientCall;
import io.grpc.ForwardingClientCall;
import io.grpc.ForwardingClientCallListener;
import io.grpc.Metadata;
import io.grpc.Status;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.Semaphore;
import java.util.function.Function;

/** A call that sends the bytes of streams in pieces, as fast as the server takes them, and has one response. */
final class Upload<Q, A> {
	private static final int PIECE = 256 << 10;

	private final ClientCall<Q, A> call;
	private final Semaphore signal = new Semaphore(0);
	private volatile boolean ended;

	/** Sends the requests of an upload. May block. */
	interface Requests<Q, A> {
		void send(Upload<Q, A> upload) throws IOException, InterruptedException;
	}

	Upload(ClientCall<Q, A> call) {
		this.call = call;
	}

	/**
	 * Starts the call, and sends its requests in a thread of the executor. The future completes with the response, or
	 * fails with an UncheckedIOException if the requests cannot be read. Cancelling it cancels the call.
	 *
	 * @param progress receives the position in the trailers; null for none
	 */
	CompletableFuture<A> start(Executor executor, Progress progress, Requests<Q, A> requests) {
		CompletableFuture<A> response = new UnaryCall<>(watched(), progress).begin();
		try {
			executor.execute(() -> send(requests, response));
		} catch (RuntimeException e) { // the executor refused the task
			fail(response, e);
		}
		return response;
	}

	private void send(Requests<Q, A> requests, CompletableFuture<A> response) {
		try {
			requests.send(this);
			call.halfClose();
		} catch (IOException e) {
			fail(response, new UncheckedIOException(e));
		} catch (InterruptedException e) {
			fail(response, new CallInterruptedException(e));
		} catch (RuntimeException e) { // of the source; or the call was cancelled
			fail(response, e);
		}
	}

	private void fail(CompletableFuture<A> response, RuntimeException error) {
		response.completeExceptionally(error);
		call.cancel("a request cannot be sent", error);
	}

	/** Sends a request that has no piece. */
	void send(Q request) {
		call.sendMessage(request);
	}

	/**
	 * Sends the bytes up to the end of a stream. Blocks until gRPC has taken them. Returns early if the call has ended:
	 * the response has the cause.
	 *
	 * @param request makes the request of a piece
	 */
	void sendPieces(InputStream in, Function<ByteString, Q> request) throws IOException, InterruptedException {
		for (byte[] piece = in.readNBytes(PIECE); piece.length > 0; piece = in.readNBytes(PIECE)) {
			while (!ended && !call.isReady()) {
				signal.acquire();
			}
			if (ended) {
				return;
			}
			call.sendMessage(request.apply(UnsafeByteOperations.unsafeWrap(piece)));
		}
	}

	/** The call, whose listener also wakes the sender. */
	private ClientCall<Q, A> watched() {
		return new ForwardingClientCall.SimpleForwardingClientCall<>(call) {
			@Override
			public void start(Listener<A> listener, Metadata headers) {
				super.start(new Wakes(listener), headers);
			}
		};
	}

	private final class Wakes extends ForwardingClientCallListener.SimpleForwardingClientCallListener<A> {
		private Wakes(ClientCall.Listener<A> listener) {
			super(listener);
		}

		@Override
		public void onReady() {
			signal.release();
		}

		@Override
		public void onClose(Status status, Metadata trailers) {
			ended = true;
			signal.release();
			super.onClose(status, trailers);
		}
	}
}
