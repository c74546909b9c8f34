package io.github.copilotgrpc.errors;

import io.grpc.Status;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;

/**
 * A refusal or failure of the server, or of the connection to it.
 *
 * <p>Reasons that programs often handle have a subclass, such as {@link SessionNotFoundException}. All other
 * reasons, also those that are newer than this library, are values of {@link #reason()}.
 */
public class CopilotException extends RuntimeException {
	private static final long serialVersionUID = 1L;

	private final transient Details details;

	/**
	 * What an exception reports besides its message.
	 *
	 * @param code status code of gRPC
	 * @param reason machine-readable cause, such as {@code SESSION_NOT_FOUND}; empty for errors of the network
	 * @param field path of the invalid field of the request; empty if there is none
	 * @param metadata further details: session_id, callback_id, method and others
	 * @param retryAfter time to wait before a retry; zero if the server does not say
	 */
	public record Details(
			Status.Code code, String reason, String field, Map<String, String> metadata, Duration retryAfter) {
		/**
		 * Copies the metadata.
		 *
		 * @param code status code of gRPC
		 * @param reason machine-readable cause; empty for errors of the network
		 * @param field path of the invalid field of the request; empty if there is none
		 * @param metadata further details
		 * @param retryAfter time to wait before a retry; zero if the server does not say
		 */
		public Details {
			Objects.requireNonNull(code);
			metadata = Map.copyOf(metadata);
		}

		/**
		 * Details without a field, metadata or a time.
		 *
		 * @param code status code of gRPC
		 * @param reason machine-readable cause; empty for none
		 */
		public Details(Status.Code code, String reason) {
			this(code, reason, "", Map.of(), Duration.ZERO);
		}
	}

	/**
	 * Makes an exception.
	 *
	 * @param message human-readable
	 * @param details what the server reported
	 * @param cause the error of gRPC; may be null
	 */
	public CopilotException(String message, Details details, Throwable cause) {
		super(message, cause);
		this.details = Objects.requireNonNull(details);
	}

	/**
	 * Returns the status code of gRPC.
	 *
	 * @return the code
	 */
	public Status.Code code() {
		return details.code();
	}

	/**
	 * Returns the machine-readable cause: a name of {@code copilot.bridge.v1.ErrorReason} without its prefix.
	 *
	 * @return the reason, such as {@code SESSION_NOT_FOUND}; empty for errors of the network
	 */
	public String reason() {
		return details.reason();
	}

	/**
	 * Returns the path of the invalid field of the request.
	 *
	 * @return the path; empty if there is none
	 */
	public String field() {
		return details.field();
	}

	/**
	 * Returns further details: session_id, callback_id, method and others.
	 *
	 * @return values by name
	 */
	public Map<String, String> metadata() {
		return details.metadata();
	}

	/**
	 * Returns the time to wait before a retry.
	 *
	 * @return the time; zero if the server does not say
	 */
	public Duration retryAfter() {
		return details.retryAfter();
	}

	/**
	 * Reports whether the connection failed, or the token was replaced, so that a new attempt may help.
	 *
	 * @return whether a new attempt may help
	 */
	public boolean isBroken() {
		return switch (code()) {
			case UNAVAILABLE -> true;
			// Only the server gives reasons. Proxies and HTTP/2 report a cut connection under several codes.
			case CANCELLED, UNKNOWN, INTERNAL, DEADLINE_EXCEEDED, ABORTED -> reason().isEmpty();
			default -> false;
		};
	}

	@Override
	public String toString() {
		String head = reason().isEmpty() ? code().name() : code() + " " + reason();
		String at = field().isEmpty() ? "" : " (field " + field() + ")";
		return getClass().getSimpleName() + ": " + head + at + ": " + getMessage();
	}
}
