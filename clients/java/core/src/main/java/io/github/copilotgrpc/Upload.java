package io.github.copilotgrpc;

import com.google.protobuf.ByteString;
import io.github.copilotgrpc.bridge.v1.AttachmentChunk;
import io.github.copilotgrpc.bridge.v1.SendRequest;
import io.github.copilotgrpc.bridge.v1.SendStreamRequest;
import io.github.copilotgrpc.bridge.v1.SendStreamResponse;
import io.github.copilotgrpc.errors.CallInterruptedException;
import io.grpc.ClientCall;
import io.grpc.ForwardingClientCall;
import io.grpc.ForwardingClientCallListener;
import io.grpc.Metadata;
import io.grpc.Status;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;

/** Sends a prompt with the bytes of its large attachments in pieces. */
final class Upload {
	private static final int PIECE = 256 << 10;

	private final ClientCall<SendStreamRequest, SendStreamResponse> call;
	private final Semaphore signal = new Semaphore(0);
	private volatile boolean ended;

	Upload(ClientCall<SendStreamRequest, SendStreamResponse> call) {
		this.call = call;
	}

	/** Sends everything, and blocks until gRPC has taken it. The future completes with the reply. */
	CompletableFuture<SendStreamResponse> send(SendRequest request, List<Attachment> attachments, Progress progress) {
		UnaryCall<SendStreamRequest, SendStreamResponse> reply = new UnaryCall<>(watched(), progress);
		CompletableFuture<SendStreamResponse> result = reply.begin();
		call.sendMessage(SendStreamRequest.newBuilder().setRequest(request).build());
		// The prompt may have had attachments of its own.
		int index = request.getPrompt().getAttachmentsCount() - attachments.size();
		try {
			for (Attachment attachment : attachments) {
				if (attachment.isLarge()) {
					sendPieces(index, attachment);
				}
				index++;
			}
			call.halfClose();
		} catch (IOException | InterruptedException e) {
			result.completeExceptionally(e instanceof IOException io ? new UncheckedIOException(io)
					: new CallInterruptedException((InterruptedException) e));
			call.cancel("an attachment cannot be read", e);
		}
		return result;
	}

	private void sendPieces(int index, Attachment attachment) throws IOException, InterruptedException {
		try (InputStream in = attachment.open()) {
			for (byte[] piece = in.readNBytes(PIECE); piece.length > 0; piece = in.readNBytes(PIECE)) {
				while (!ended && !call.isReady()) {
					signal.acquire();
				}
				if (ended) {
					return; // the reply has the cause
				}
				AttachmentChunk chunk =
						AttachmentChunk.newBuilder().setAttachment(index).setData(ByteString.copyFrom(piece)).build();
				call.sendMessage(SendStreamRequest.newBuilder().setChunk(chunk).build());
			}
		}
	}

	/** The call, whose listener also wakes the sender. */
	private ClientCall<SendStreamRequest, SendStreamResponse> watched() {
		return new ForwardingClientCall.SimpleForwardingClientCall<>(call) {
			@Override
			public void start(Listener<SendStreamResponse> listener, Metadata headers) {
				super.start(new Wakes(listener), headers);
			}
		};
	}

	private final class Wakes
			extends ForwardingClientCallListener.SimpleForwardingClientCallListener<SendStreamResponse> {
		private Wakes(ClientCall.Listener<SendStreamResponse> listener) {
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
