import io.github.copilotgrpc.conformance.v1.Error;
import io.github.copilotgrpc.errors.CopilotException;
import io.github.copilotgrpc.errors.ServerIncompatibleException;
import io.github.copilotgrpc.errors.SessionClosedException;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/** Names of errors. */
final class Failures {
	private static final Metadata.Key<String> REASON =
			Metadata.Key.of("copilot-reason", Metadata.ASCII_STRING_MARSHALLER);

	private Failures() {}

	static Error cancelled() {
		return Error.newBuilder().setKind(Error.Kind.CANCELLED).setMessage("cancelled").build();
	}

	/** Waits for a future, and throws its cause. */
	static <T> T join(CompletableFuture<T> future) throws Throwable {
		try {
			return future.get();
		} catch (ExecutionException e) {
			throw e.getCause();
		}
	}

	/** Tells what kind of error it is. */
	static Error of(Throwable thrown) {
		Throwable error = thrown instanceof CompletionException && thrown.getCause() != null ? thrown.getCause() : thrown;
		Error.Builder result = Error.newBuilder().setMessage(String.valueOf(error.getMessage()));
		if (error instanceof CancellationException || error instanceof InterruptedException) {
			return cancelled();
		}
		if (error instanceof UnsupportedOperationException) {
			return result.setKind(Error.Kind.UNSUPPORTED).build();
		}
		if (error instanceof ServerIncompatibleException) {
			return result.setKind(Error.Kind.INCOMPATIBLE).build();
		}
		if (error instanceof SessionClosedException closed) {
			String reason = closed.closeReason();
			return reason.equals("closed") ? result.setKind(Error.Kind.CLOSED).build()
					: result.setKind(Error.Kind.SESSION_CLOSED).setReason(reason.toUpperCase()).build();
		}
		if (error instanceof CopilotException status) {
			result.setKind(Error.Kind.STATUS).setCode(status.code().name()).setReason(status.reason());
			return result.setField(status.field()).build();
		}
		if (error instanceof StatusRuntimeException status) { // of a generated stub
			result.setKind(Error.Kind.STATUS).setCode(status.getStatus().getCode().name());
			String reason = status.getTrailers() == null ? null : status.getTrailers().get(REASON);
			return result.setReason(reason == null ? "" : reason).build();
		}
		return result.setKind(Error.Kind.USAGE).setMessage(error.toString()).build();
	}
}
