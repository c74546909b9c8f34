package io.github.copilotgrpc;

import io.grpc.CallCredentials;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;

/**
 * Adds the bearer token to calls. A call that is refused because its token was replaced meanwhile ends with a status
 * whose cause is {@link Replaced}.
 */
final class Bearer implements ClientInterceptor {
	/** The token of a call was replaced. */
	static final class Replaced extends Exception {
		private static final long serialVersionUID = 1L;

		private Replaced() {
			super("the token has been replaced", null, false, false);
		}
	}

	private static final Metadata.Key<String> AUTHORIZATION =
			Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

	private final Token token;
	private final Executor executor;

	/** @param executor reads the token after a refusal, which may block */
	Bearer(Token token, Executor executor) {
		this.token = token;
		this.executor = executor;
	}

	@Override
	public <Q, A> ClientCall<Q, A> interceptCall(MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
		if (options.getCredentials() != null) {
			return next.newCall(method, options); // of a program's own stub
		}
		Sent sent = new Sent();
		return new SimpleForwardingClientCall<>(next.newCall(method, options.withCallCredentials(sent))) {
			@Override
			public void start(Listener<A> listener, Metadata headers) {
				super.start(new SimpleForwardingClientCallListener<>(listener) {
					@Override
					public void onClose(Status status, Metadata trailers) {
						if (status.getCode() != Status.Code.UNAUTHENTICATED) {
							super.onClose(status, trailers);
							return;
						}
						try {
							executor.execute(() -> super.onClose(sent.examined(status), trailers));
						} catch (RejectedExecutionException e) {
							super.onClose(status, trailers); // the client is closed
						}
					}
				}, headers);
			}
		};
	}

	/** The token of one call. */
	private final class Sent extends CallCredentials {
		private volatile String text;

		@Override
		public void applyRequestMetadata(RequestInfo request, Executor worker, MetadataApplier applier) {
			worker.execute(() -> {
				try {
					text = token.get();
					Metadata headers = new Metadata();
					headers.put(AUTHORIZATION, "Bearer " + text);
					applier.apply(headers);
				} catch (Exception e) {
					applier.fail(Status.UNAUTHENTICATED.withDescription("no token: " + e).withCause(e));
				}
			});
		}

		/** The status of a refusal, with the cause if there is another token now. May block. */
		private Status examined(Status status) {
			try {
				return text == null || token.get().equals(text) ? status : status.withCause(new Replaced());
			} catch (Exception e) {
				return status;
			}
		}
	}
}
