package io.github.copilotgrpc;

import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.bridge.v1.CallbackServiceGrpc;
import io.github.copilotgrpc.bridge.v1.ReadCallbackRequest;
import io.github.copilotgrpc.bridge.v1.ReadCallbackResponse;
import io.github.copilotgrpc.errors.ConnectionLostException;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * The channel to a server, with the policies of a client.
 *
 * @param timer runs short tasks only
 * @param executor runs code of programs
 * @param bearer null if the client has no token
 * @param callTimeout time limit of unary calls; zero for none
 * @param closeTimeout time limit of leaving a session
 */
record Connection(
		ManagedChannel channel, ScheduledExecutorService timer, Executor executor, Bearer bearer, String name,
		Reconnect reconnect, Duration callTimeout, Duration closeTimeout) {
	/** Interval of signs of life in both directions: below the idle timeout of the usual proxies. */
	static final Duration HEARTBEAT = Duration.ofSeconds(20);
	/** A stream without any frame for this time is broken. */
	static final Duration SILENCE = HEARTBEAT.multipliedBy(3);
	/** Calls with a request id are repeated long enough for a server or a CLI process that is being replaced. */
	private static final Reconnect CALLS =
			new Reconnect(Duration.ofMillis(100), Duration.ofSeconds(1), Duration.ofSeconds(3));

	/** How calls with a request id are repeated; not at all if streams are not. */
	Reconnect callPolicy() {
		return reconnect.giveUpAfter().isZero() ? reconnect : CALLS;
	}

	/** The channel with the token. */
	Channel authorized() {
		return bearer == null ? channel : ClientInterceptors.intercept(channel, bearer);
	}

	<Q, A> ClientCall<Q, A> call(MethodDescriptor<Q, A> method, Duration timeout) {
		CallOptions options = CallOptions.DEFAULT;
		if (!timeout.isZero()) {
			options = options.withDeadlineAfter(timeout.toNanos(), TimeUnit.NANOSECONDS);
		}
		return authorized().newCall(method, options);
	}

	/** Makes a unary call with the default time limit. */
	<Q, A> CompletableFuture<A> unary(MethodDescriptor<Q, A> method, Q request, Progress progress) {
		return unary(method, request, progress, callTimeout);
	}

	/** Makes a unary call, and once more if its token has been replaced. Cancelling the future cancels the call. */
	<Q, A> CompletableFuture<A> unary(MethodDescriptor<Q, A> method, Q request, Progress progress, Duration timeout) {
		return Repeat.withNewToken(() -> attempt(method, request, progress, timeout));
	}

	/** Makes a unary call and notes the position in its trailers. Cancelling the future cancels the call. */
	<Q, A> CompletableFuture<A> attempt(
			MethodDescriptor<Q, A> method, Q request, Progress progress, Duration timeout) {
		return new UnaryCall<Q, A>(call(method, timeout), progress).start(request);
	}

	/** Makes a call that a request id makes idempotent. */
	<T> CompletableFuture<T> repeat(Reconnect policy, Supplier<CompletableFuture<T>> call) {
		return Repeat.repeat(policy, timer, () -> {
			channel.resetConnectBackoff(); // the library waits between attempts
			return call.get();
		});
	}

	/** Opens a stream of responses. */
	<Q, A> Reader<A> stream(MethodDescriptor<Q, A> method, Q request, Duration silence) {
		channel.resetConnectBackoff();
		Reader<A> reader = new Reader<>(timer, silence);
		reader.start(call(method, Duration.ZERO), request);
		return reader;
	}

	/** Reads a stream of pieces to its end, and joins their bytes. */
	<Q, A> CompletableFuture<ByteString> readAll(
			MethodDescriptor<Q, A> method, Q request, Function<A, ByteString> bytes) {
		Reader<A> reader = stream(method, request, SILENCE);
		CompletableFuture<ByteString> result = new CompletableFuture<>();
		Futures.onCancel(result, reader::close);
		readNext(reader, bytes, ByteString.EMPTY, result);
		return result;
	}

	private <A> void readNext(
			Reader<A> reader, Function<A, ByteString> bytes, ByteString before, CompletableFuture<ByteString> result) {
		ByteString arrived = before;
		for (A piece = reader.poll(); piece != null; piece = reader.poll()) {
			arrived = arrived.concat(bytes.apply(piece));
		}
		ByteString all = arrived;
		reader.next().whenComplete((piece, error) -> {
			if (error != null) {
				result.completeExceptionally(Errors.unwrap(error));
			} else if (piece == null) {
				result.complete(all);
			} else {
				readNext(reader, bytes, all.concat(bytes.apply(piece)), result);
			}
		});
	}

	/** Reads a callback whose request did not fit into a frame. */
	CompletableFuture<Callback> readCallback(String sessionId, String callbackId) {
		ReadCallbackRequest request =
				ReadCallbackRequest.newBuilder().setSessionId(sessionId).setCallbackId(callbackId).build();
		return repeat(callPolicy(), () -> readAll(
				CallbackServiceGrpc.getReadCallbackMethod(), request, ReadCallbackResponse::getChunk))
				.thenApply(bytes -> {
					try {
						return Callback.parseFrom(bytes);
					} catch (InvalidProtocolBufferException e) {
						throw new ConnectionLostException("the callback is incomplete");
					}
				});
	}
}
