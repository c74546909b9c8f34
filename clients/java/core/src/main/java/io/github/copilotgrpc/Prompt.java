package io.github.copilotgrpc;

import io.github.copilotgrpc.cli.v1.SendMode;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.UUID;
import java.util.stream.Stream;

/** A prompt and how it is sent. Immutable: the methods return changed copies. */
public final class Prompt {
	private final io.github.copilotgrpc.bridge.v1.Prompt message;
	private final List<Attachment> attachments;
	private final String requestId; // empty for a random one
	private final Duration idleTimeout; // null for none
	private final Duration timeout; // null for none
	private final boolean abortOnCancel;

	private Prompt(
			io.github.copilotgrpc.bridge.v1.Prompt message, List<Attachment> attachments, String requestId,
			Duration idleTimeout, Duration timeout, boolean abortOnCancel) {
		this.message = message;
		this.attachments = attachments;
		this.requestId = requestId;
		this.idleTimeout = idleTimeout;
		this.timeout = timeout;
		this.abortOnCancel = abortOnCancel;
	}

	/**
	 * Returns a prompt with a text.
	 *
	 * @param text the text
	 * @return the prompt
	 */
	public static Prompt of(String text) {
		return of(io.github.copilotgrpc.bridge.v1.Prompt.newBuilder().setText(text).build());
	}

	/**
	 * Returns a prompt with further fields, such as the agent's mode.
	 *
	 * @param message the prompt
	 * @return the prompt
	 */
	public static Prompt of(io.github.copilotgrpc.bridge.v1.Prompt message) {
		return new Prompt(Objects.requireNonNull(message), List.of(), "", null, null, false);
	}

	/**
	 * Adds attachments. Large ones and streams are sent in pieces.
	 *
	 * @param more the attachments
	 * @return the changed copy
	 */
	public Prompt attach(Attachment... more) {
		List<Attachment> all = Stream.concat(attachments.stream(), Stream.of(more)).toList();
		return new Prompt(message, all, requestId, idleTimeout, timeout, abortOnCancel);
	}

	/**
	 * Steers the running turn instead of waiting for its end.
	 *
	 * @return the changed copy
	 */
	public Prompt immediate() {
		return new Prompt(message.toBuilder().setMode(SendMode.SEND_MODE_IMMEDIATE).build(),
				attachments, requestId, idleTimeout, timeout, abortOnCancel);
	}

	/**
	 * Makes sending idempotent across restarts of this program. Default: a random id.
	 *
	 * @param id the id, at most 128 characters
	 * @return the changed copy
	 */
	public Prompt requestId(String id) {
		return new Prompt(message, attachments, id, idleTimeout, timeout, abortOnCancel);
	}

	/**
	 * Ends {@code sendAndWait} with {@link Outcome.Status#TIMED_OUT} after a time without an event. Time in which a
	 * tool, a callback or a shell runs does not count. Default: no limit.
	 *
	 * @param limit the time
	 * @return the changed copy
	 */
	public Prompt idleTimeout(Duration limit) {
		return new Prompt(message, attachments, requestId, Objects.requireNonNull(limit), timeout, abortOnCancel);
	}

	/**
	 * Ends {@code sendAndWait} with {@link Outcome.Status#TIMED_OUT} after a time; the turn continues. Default: no
	 * limit.
	 *
	 * @param limit the time
	 * @return the changed copy
	 */
	public Prompt timeout(Duration limit) {
		return new Prompt(message, attachments, requestId, idleTimeout, Objects.requireNonNull(limit), abortOnCancel);
	}

	/**
	 * Stops the turn if the waiting thread is interrupted, or the future is cancelled. Default: the turn continues.
	 *
	 * @return the changed copy
	 */
	public Prompt abortOnCancel() {
		return new Prompt(message, attachments, requestId, idleTimeout, timeout, true);
	}

	boolean isAbortedOnCancel() {
		return abortOnCancel;
	}

	Optional<Duration> idleLimit() {
		return Optional.ofNullable(idleTimeout);
	}

	Optional<Duration> limit() {
		return Optional.ofNullable(timeout);
	}

	/** The request id, or a new one. */
	String id() {
		return requestId.isEmpty() ? UUID.randomUUID().toString() : requestId;
	}

	List<Attachment> attachments() {
		return attachments;
	}

	boolean hasLarge() {
		return attachments.stream().anyMatch(Attachment::isLarge);
	}

	/** Adds the trace of the calling thread, unless the prompt has one. */
	Prompt traced() {
		Map<String, String> trace = message.getTraceparent().isEmpty() ? Traces.current() : Map.of();
		if (trace.isEmpty()) {
			return this;
		}
		var traced = message.toBuilder().setTraceparent(trace.getOrDefault("traceparent", ""))
				.setTracestate(trace.getOrDefault("tracestate", "")).build();
		return new Prompt(traced, attachments, requestId, idleTimeout, timeout, abortOnCancel);
	}

	/** The message. Without `inline`, large attachments have no bytes. Reads files and streams, so it may block. */
	io.github.copilotgrpc.bridge.v1.Prompt toMessage(boolean inline) throws IOException {
		var whole = message.toBuilder();
		for (Attachment attachment : attachments) {
			whole.addAttachments(inline || !attachment.isLarge() ? attachment.whole() : attachment.message());
		}
		return whole.build();
	}
}
