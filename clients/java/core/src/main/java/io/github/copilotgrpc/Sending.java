package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.AbortRequest;
import io.github.copilotgrpc.bridge.v1.AbortResponse;
import io.github.copilotgrpc.bridge.v1.AttachmentChunk;
import io.github.copilotgrpc.bridge.v1.SendAndWaitRequest;
import io.github.copilotgrpc.bridge.v1.SendRequest;
import io.github.copilotgrpc.bridge.v1.SendStreamRequest;
import io.github.copilotgrpc.bridge.v1.SendStreamResponse;
import io.github.copilotgrpc.bridge.v1.SessionServiceGrpc;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Sends the prompts of a session. */
record Sending(Connection connection, String sessionId, Progress progress) {
	private static final Duration ABORT_TIMEOUT = Duration.ofSeconds(5);

	private interface Action<T> {
		CompletableFuture<T> start();
	}

	CompletableFuture<Receipt> send(Prompt prompt) {
		return onExecutor(() -> {
			boolean large = prompt.hasLarge();
			SendRequest request = SendRequest.newBuilder().setRequestId(prompt.id()).setSessionId(sessionId)
					.setPrompt(messageOf(prompt, !large)).build();
			if (large) {
				return upload(prompt, request);
			}
			var sent = connection.repeat(connection.callPolicy(),
					() -> connection.attempt(
							SessionServiceGrpc.getSendMethod(), request, progress, connection.callTimeout()));
			return Futures.map(sent, reply -> receipt(
					reply.getMessageId(), reply.getResentMessageId(), reply.getPosition(), reply.getInMemoryOnly()));
		});
	}

	/** A stream can be read once, so the call is not repeated. */
	private CompletableFuture<Receipt> upload(Prompt prompt, SendRequest request) {
		var call = connection.call(SessionServiceGrpc.getSendStreamMethod(), Duration.ZERO);
		var sent = new Upload<>(call).start(connection.executor(), progress, upload -> {
			upload.send(SendStreamRequest.newBuilder().setRequest(request).build());
			// The prompt may have had attachments of its own.
			int index = request.getPrompt().getAttachmentsCount() - prompt.attachments().size();
			for (Attachment attachment : prompt.attachments()) {
				if (attachment.isLarge()) {
					sendLarge(upload, index, attachment);
				}
				index++;
			}
		});
		return Futures.map(sent, reply -> receipt(
				reply.getMessageId(), reply.getResentMessageId(), reply.getPosition(), reply.getInMemoryOnly()));
	}

	private static void sendLarge(
			Upload<SendStreamRequest, SendStreamResponse> upload, int index, Attachment attachment)
			throws IOException, InterruptedException {
		try (InputStream in = attachment.open()) {
			upload.sendPieces(in, piece -> SendStreamRequest.newBuilder().setChunk(
					AttachmentChunk.newBuilder().setAttachment(index).setData(piece)).build());
		}
	}

	private Receipt receipt(
			String id, String resentId, io.github.copilotgrpc.bridge.v1.Position position, boolean inMemoryOnly) {
		progress.note(position);
		return new Receipt(resentId.isEmpty() ? id : resentId, Position.of(position), inMemoryOnly);
	}

	CompletableFuture<Outcome> sendAndWait(Prompt prompt) {
		return onExecutor(() -> {
			SendAndWaitRequest.Builder request = SendAndWaitRequest.newBuilder()
					.setRequestId(prompt.id()).setSessionId(sessionId).setPrompt(messageOf(prompt, true));
			prompt.idleLimit().ifPresent(limit -> request.setIdleTimeout(Starts.message(limit)));
			prompt.limit().ifPresent(limit -> request.setTimeout(Starts.message(limit)));
			SendAndWaitRequest whole = request.build();
			var waited = connection.repeat(connection.reconnect(), () -> connection.attempt(
					SessionServiceGrpc.getSendAndWaitMethod(), whole, progress, Duration.ZERO));
			return Futures.map(waited, reply -> {
				progress.note(reply.getOutcome().getEndPosition());
				return Outcome.of(reply.getMessageId(), reply.getOutcome());
			});
		});
	}

	CompletableFuture<Boolean> abort() {
		AbortRequest request = AbortRequest.newBuilder().setSessionId(sessionId).build();
		return Futures.map(connection.unary(SessionServiceGrpc.getAbortMethod(), request, progress),
				AbortResponse::getTurnWasRunning);
	}

	/** Aborts without a wait, after a cancellation. */
	void abortDetached() {
		abort().orTimeout(ABORT_TIMEOUT.toSeconds(), TimeUnit.SECONDS).whenComplete((reply, error) -> {
			if (error != null) {
				Log.debug("turn not aborted", error);
			}
		});
	}

	/** Starts an action that may block in a thread of the executor, and publishes its result there. */
	private <T> CompletableFuture<T> onExecutor(Action<T> action) {
		CompletableFuture<T> inner = new CompletableFuture<>();
		connection.executor().execute(() -> {
			if (inner.isDone()) {
				return; // cancelled
			}
			try {
				Futures.relay(action.start(), inner);
			} catch (RuntimeException e) {
				inner.completeExceptionally(e);
			}
		});
		return Futures.published(inner, connection.executor());
	}

	/** The message of a prompt; may block. */
	static io.github.copilotgrpc.bridge.v1.Prompt messageOf(Prompt prompt, boolean inline) {
		try {
			return prompt.toMessage(inline);
		} catch (IOException e) {
			throw new UncheckedIOException(e);
		}
	}
}
