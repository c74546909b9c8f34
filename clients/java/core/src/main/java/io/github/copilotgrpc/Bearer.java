package io.github.copilotgrpc;

import io.grpc.CallCredentials;
import io.grpc.Metadata;
import io.grpc.Status;
import java.util.concurrent.Executor;

/** Adds the bearer token to calls. */
final class Bearer extends CallCredentials {
	private static final Metadata.Key<String> AUTHORIZATION =
			Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

	private final Token token;
	private volatile String last = "";

	Bearer(Token token) {
		this.token = token;
	}

	@Override
	public void applyRequestMetadata(RequestInfo request, Executor executor, MetadataApplier applier) {
		executor.execute(() -> {
			try {
				String current = token.get();
				last = current;
				Metadata headers = new Metadata();
				headers.put(AUTHORIZATION, "Bearer " + current);
				applier.apply(headers);
			} catch (Exception e) {
				applier.fail(Status.UNAUTHENTICATED.withDescription("no token: " + e).withCause(e));
			}
		});
	}

	/** Whether the current token differs from the one that was used last. May block. */
	boolean hasChanged() {
		try {
			return !token.get().equals(last);
		} catch (Exception e) {
			return false;
		}
	}
}
