package io.github.copilotgrpc;

import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.github.copilotgrpc.bridge.v1.ErrorReason;
import io.github.copilotgrpc.bridge.v1.Failure;
import io.github.copilotgrpc.errors.CallbackNotFoundException;
import io.github.copilotgrpc.errors.CallbackResolvedException;
import io.github.copilotgrpc.errors.ConnectionLostException;
import io.github.copilotgrpc.errors.CopilotException;
import io.github.copilotgrpc.errors.CopilotException.Details;
import io.github.copilotgrpc.errors.CredentialsNeededException;
import io.github.copilotgrpc.errors.DeadlineExceededException;
import io.github.copilotgrpc.errors.FeatureDisabledException;
import io.github.copilotgrpc.errors.ForbiddenException;
import io.github.copilotgrpc.errors.InvalidFieldException;
import io.github.copilotgrpc.errors.LimitExceededException;
import io.github.copilotgrpc.errors.NotSignedInException;
import io.github.copilotgrpc.errors.ParticipantNotFoundException;
import io.github.copilotgrpc.errors.RuntimeLostException;
import io.github.copilotgrpc.errors.SessionBusyException;
import io.github.copilotgrpc.errors.SessionExistsException;
import io.github.copilotgrpc.errors.SessionNotFoundException;
import io.github.copilotgrpc.errors.ToolNameConflictException;
import io.github.copilotgrpc.errors.UnauthenticatedException;
import io.grpc.Metadata;
import io.grpc.Status;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/** Makes exceptions of what gRPC and the server report. */
final class Errors {
	private static final String DOMAIN = "copilot-grpc";
	private static final String PREFIX = "ERROR_REASON_";
	private static final String NETWORK = "io exception";
	private static final Metadata.Key<byte[]> STATUS =
			Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);
	private static final Metadata.Key<String> REASON = ascii("copilot-reason");
	private static final Metadata.Key<String> FIELD = ascii("copilot-field");
	private static final Map<String, Factory> BY_REASON = Map.ofEntries(
			Map.entry("SESSION_NOT_FOUND", SessionNotFoundException::new),
			Map.entry("SESSION_EXISTS", SessionExistsException::new),
			Map.entry("SESSION_BUSY", SessionBusyException::new),
			Map.entry("INVALID_FIELD", InvalidFieldException::new),
			Map.entry("TOOL_NAME_CONFLICT", ToolNameConflictException::new),
			Map.entry("CALLBACK_NOT_FOUND", CallbackNotFoundException::new),
			Map.entry("CALLBACK_RESOLVED", CallbackResolvedException::new),
			Map.entry("PARTICIPANT_NOT_FOUND", ParticipantNotFoundException::new),
			Map.entry("CREDENTIALS_NEEDED", CredentialsNeededException::new),
			Map.entry("NOT_SIGNED_IN", NotSignedInException::new),
			Map.entry("RUNTIME_LOST", RuntimeLostException::new),
			Map.entry("LIMIT_EXCEEDED", LimitExceededException::new),
			Map.entry("UNAUTHENTICATED", UnauthenticatedException::new),
			Map.entry("FORBIDDEN", ForbiddenException::new),
			Map.entry("FEATURE_DISABLED", FeatureDisabledException::new));

	private interface Factory {
		CopilotException make(String message, Details details, Throwable cause);
	}

	private Errors() {}

	/** The exception of a call that did not end with OK. */
	static CopilotException of(Status status, Metadata trailers) {
		Metadata metadata = trailers == null ? new Metadata() : trailers;
		String reason = orEmpty(metadata.get(REASON));
		String field = orEmpty(metadata.get(FIELD));
		Map<String, String> info = Map.of();
		Duration retryAfter = Duration.ZERO;
		byte[] packed = metadata.get(STATUS);
		if (packed != null) {
			try {
				for (var detail : com.google.rpc.Status.parseFrom(packed).getDetailsList()) {
					if (detail.is(ErrorInfo.class)) {
						ErrorInfo error = detail.unpack(ErrorInfo.class);
						if (error.getDomain().equals(DOMAIN)) {
							reason = error.getReason();
							info = error.getMetadataMap();
							field = field.isEmpty() ? info.getOrDefault("field", "") : field;
						}
					} else if (detail.is(BadRequest.class)) {
						BadRequest bad = detail.unpack(BadRequest.class);
						field = bad.getFieldViolationsCount() > 0 ? bad.getFieldViolations(0).getField() : field;
					} else if (detail.is(RetryInfo.class)) {
						var delay = detail.unpack(RetryInfo.class).getRetryDelay();
						retryAfter = Duration.ofSeconds(delay.getSeconds(), delay.getNanos());
					}
				}
			} catch (InvalidProtocolBufferException e) {
				// Details of another server: the code and the text remain.
			}
		}
		Details details = new Details(status.getCode(), reason, field, info, retryAfter);
		if (status.getCause() instanceof Bearer.Replaced) {
			return new UnauthenticatedException(describe(status), details, null, true);
		}
		// The text of a network error is in the message. Other causes are exceptions of the program, such as a Token's.
		return make(describe(status), details, status.getCause() instanceof IOException ? null : status.getCause());
	}

	/** What failed, in one line: gRPC's own text of a network error says only that there is one. */
	private static String describe(Status status) {
		String text = orEmpty(status.getDescription());
		Throwable root = status.getCause();
		while (root != null && root.getCause() != null) {
			root = root.getCause();
		}
		if (!(root instanceof IOException)) {
			return text;
		}
		String cause = root instanceof FileNotFoundException && root.getMessage() == null // Netty's, of a unix socket
				? "there is no such socket" : String.valueOf(root.getMessage()).lines().findFirst().orElse("");
		return text.equals(NETWORK) ? cause : text + ": " + cause;
	}

	/** The exception of a failure in a stream. */
	static CopilotException of(Failure failure) {
		String name = failure.getReason() == ErrorReason.UNRECOGNIZED ? "" : failure.getReason().name();
		String reason = failure.getReasonValue() == 0 || name.isEmpty() ? "" : name.substring(PREFIX.length());
		Status.Code code = Status.fromCodeValue(failure.getCode()).getCode();
		return make(failure.getMessage(),
				new Details(code, reason, failure.getField(), failure.getMetadataMap(), Duration.ZERO), null);
	}

	private static CopilotException make(String text, Details details, Throwable cause) {
		String message = text;
		if (details.code() == Status.Code.UNAUTHENTICATED && cause == null) {
			message += ": give a token with ClientBuilder.token, or set " + Token.VARIABLE;
		}
		String holder = details.metadata().getOrDefault("holder", ""); // of the name of a tool or command
		if (!message.contains(holder)) {
			message += "; " + holder + " has it";
		}
		Factory factory = BY_REASON.get(details.reason());
		if (factory == null && details.reason().isEmpty()) {
			factory = switch (details.code()) {
				case UNAVAILABLE -> ConnectionLostException::new;
				case UNAUTHENTICATED -> UnauthenticatedException::new;
				case DEADLINE_EXCEEDED -> DeadlineExceededException::new;
				default -> null;
			};
		}
		return factory == null ? new CopilotException(message, details, cause) : factory.make(message, details, cause);
	}

	/** The exception in what a future failed with. */
	static CopilotException of(Throwable failure) {
		Throwable error = unwrap(failure);
		if (error instanceof CopilotException known) {
			return known;
		}
		return new CopilotException(String.valueOf(error), new Details(Status.Code.CANCELLED, "CLIENT"), error);
	}

	/** Removes the wrappers that futures add. */
	static Throwable unwrap(Throwable failure) {
		Throwable error = failure;
		while ((error instanceof CompletionException || error instanceof ExecutionException)
				&& error.getCause() != null) {
			error = error.getCause();
		}
		return error;
	}

	private static String orEmpty(String text) {
		return text == null ? "" : text;
	}

	private static Metadata.Key<String> ascii(String name) {
		return Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
	}
}
