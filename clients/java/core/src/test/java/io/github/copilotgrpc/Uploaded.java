package io.github.copilotgrpc;

import static io.github.copilotgrpc.FakeServer.soon;

import io.github.copilotgrpc.FakeServer.Played;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.util.Optional;
import java.util.Queue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;

/** A call whose requests arrive one by one, when the test asks for them. */
final class Uploaded<Q, A> extends Played<Q, A> {
	private final ServerCallStreamObserver<A> responses;
	private final BlockingQueue<Optional<Q>> received;

	private Uploaded(
			Q first, ServerCallStreamObserver<A> responses, BlockingQueue<Optional<Q>> received,
			CompletableFuture<Void> cancelled) {
		super(first, responses, cancelled);
		this.responses = responses;
		this.received = received;
	}

	/** The next request; empty at the end. */
	Optional<Q> next() throws InterruptedException {
		responses.request(1);
		return soon(received);
	}

	/** Takes a call whose first request adds it to a queue. */
	static <Q, A> StreamObserver<Q> take(StreamObserver<A> observer, Queue<Uploaded<Q, A>> calls) {
		ServerCallStreamObserver<A> responses = (ServerCallStreamObserver<A>) observer;
		BlockingQueue<Optional<Q>> received = new LinkedBlockingQueue<>();
		CompletableFuture<Void> cancelled = new CompletableFuture<>();
		responses.setOnCancelHandler(() -> cancelled.complete(null));
		responses.disableAutoRequest();
		responses.request(1);
		return new StreamObserver<>() {
			private boolean started;

			@Override
			public void onNext(Q request) {
				if (started) {
					received.add(Optional.of(request));
				} else {
					started = true;
					calls.add(new Uploaded<>(request, responses, received, cancelled));
				}
			}

			@Override
			public void onError(Throwable error) {
				cancelled.complete(null);
			}

			@Override
			public void onCompleted() {
				received.add(Optional.empty());
			}
		};
	}
}
