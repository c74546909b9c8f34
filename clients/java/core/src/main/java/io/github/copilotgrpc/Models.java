package io.github.copilotgrpc;

import com.google.protobuf.ByteString;
import io.github.copilotgrpc.bridge.v1.AttachRequest;
import io.github.copilotgrpc.bridge.v1.ModelResponse;
import io.github.copilotgrpc.bridge.v1.ModelResponseChunk;
import io.github.copilotgrpc.bridge.v1.ModelResponseError;
import io.github.copilotgrpc.bridge.v1.ModelResponseHead;
import io.github.copilotgrpc.cli.v1.CallbackLlmInferenceServiceHttpRequestChunkRequest;
import io.github.copilotgrpc.cli.v1.CallbackLlmInferenceServiceHttpRequestChunkResponse;
import io.github.copilotgrpc.cli.v1.CallbackLlmInferenceServiceHttpRequestStartRequest;
import io.github.copilotgrpc.cli.v1.CallbackLlmInferenceServiceHttpRequestStartResponse;
import io.github.copilotgrpc.cli.v1.LlmInferenceHttpRequestStartTransport;
import io.github.copilotgrpc.cli.v1.StringList;
import io.github.copilotgrpc.errors.CallInterruptedException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;
import java.util.function.Function;
import java.util.function.Supplier;

/** The model requests that a participant answers. Safe for concurrent use. */
final class Models {
	private static final int PIECE = 32 << 10;

	private record Open(FutureTask<Void> task, PieceStream body) {}

	private final ModelTransport transport;
	private final Executor executor;
	private final Map<String, Open> open = new ConcurrentHashMap<>();
	private volatile Function<AttachRequest, CompletableFuture<Void>> sender;
	private volatile Supplier<String> session;

	Models(ModelTransport transport, Executor executor) {
		this.transport = transport;
		this.executor = executor;
	}

	/** Sets the participant: it sends a frame on the next link, and knows the id of its session. */
	void bind(Participant participant) {
		sender = participant::send;
		session = participant::sessionId;
	}

	/** Adds the handlers of the callbacks about model requests. */
	void addHandlers(Map<CallbackType<?, ?>, CallbackHandler<?, ?>> byKind) {
		CallbackHandler<CallbackLlmInferenceServiceHttpRequestStartRequest,
				CallbackLlmInferenceServiceHttpRequestStartResponse> start = this::start;
		CallbackHandler<CallbackLlmInferenceServiceHttpRequestChunkRequest,
				CallbackLlmInferenceServiceHttpRequestChunkResponse> chunk = this::chunk;
		byKind.put(CallbackType.MODEL_REQUEST_START, start);
		byKind.put(CallbackType.MODEL_REQUEST_CHUNK, chunk);
	}

	/** Ends a request whose response is no longer needed. */
	void end(String requestId) {
		Open request = open.remove(requestId);
		if (request != null) {
			request.body().fail();
			request.task().cancel(true);
		}
	}

	/** Ends all requests. */
	void close() {
		List.copyOf(open.keySet()).forEach(this::end);
	}

	private CallbackLlmInferenceServiceHttpRequestStartResponse start(
			CallbackLlmInferenceServiceHttpRequestStartRequest start) throws HandlerException {
		if (start.getTransport()
				== LlmInferenceHttpRequestStartTransport.LLM_INFERENCE_HTTP_REQUEST_START_TRANSPORT_WEBSOCKET) {
			throw new HandlerException("the model transport makes no WebSocket connections");
		}
		Map<String, List<String>> headers = new HashMap<>();
		start.getHeadersMap().forEach((name, values) -> headers.put(name, List.copyOf(values.getItemsList())));
		PieceStream body = new PieceStream();
		ModelTransport.Request request = new ModelTransport.Request(
				start.getRequestId(), start.getMethod(), start.getUrl(), headers, body);
		FutureTask<Void> task = new FutureTask<>(() -> answer(request), null);
		open.put(request.requestId(), new Open(task, body));
		executor.execute(task);
		return CallbackLlmInferenceServiceHttpRequestStartResponse.getDefaultInstance();
	}

	private CallbackLlmInferenceServiceHttpRequestChunkResponse chunk(
			CallbackLlmInferenceServiceHttpRequestChunkRequest chunk) {
		Open request = open.get(chunk.getRequestId());
		if (chunk.getCancel()) {
			end(chunk.getRequestId());
		} else if (request != null) { // else its response is complete
			request.body().add(chunk.getBinary()
					? Base64.getDecoder().decode(chunk.getData()) : chunk.getData().getBytes(StandardCharsets.UTF_8));
			if (chunk.getEnd()) {
				request.body().end();
			}
		}
		return CallbackLlmInferenceServiceHttpRequestChunkResponse.getDefaultInstance();
	}

	private void answer(ModelTransport.Request request) {
		try {
			respond(request.requestId(), transport.send(request));
		} catch (CallInterruptedException | InterruptedException e) {
			Log.debug("model request cancelled", request.requestId());
		} catch (Throwable e) { // also errors: the turn must continue
			Log.failed("model transport", session.get(), request.requestId(), e, false);
			ModelResponseError error = ModelResponseError.newBuilder().setMessage("The model transport failed.").build();
			sender.apply(frame(request.requestId(), ModelResponseChunk.newBuilder().setError(error)));
		} finally {
			open.remove(request.requestId());
		}
	}

	private void respond(String requestId, ModelTransport.Reply reply) throws IOException {
		ModelResponseHead.Builder head = ModelResponseHead.newBuilder().setStatus(reply.status());
		reply.headers().forEach((name, values) ->
				head.putHeaders(name, StringList.newBuilder().addAllItems(values).build()));
		ModelResponse first = ModelResponse.newBuilder().setRequestId(requestId).setHead(head).build();
		Futures.await(sender.apply(AttachRequest.newBuilder().setModelResponse(first).build()));
		try (InputStream body = reply.body()) {
			byte[] piece = new byte[PIECE];
			for (int size = body.read(piece); size >= 0; size = body.read(piece)) {
				ByteString bytes = ByteString.copyFrom(Arrays.copyOf(piece, size));
				Futures.await(sender.apply(frame(requestId, ModelResponseChunk.newBuilder().setBinary(bytes))));
			}
		}
		ModelResponseChunk.Builder last = ModelResponseChunk.newBuilder().setBinary(ByteString.EMPTY).setEnd(true);
		Futures.await(sender.apply(frame(requestId, last)));
	}

	private static AttachRequest frame(String requestId, ModelResponseChunk.Builder chunk) {
		return AttachRequest.newBuilder().setModelResponse(
				ModelResponse.newBuilder().setRequestId(requestId).setChunk(chunk)).build();
	}
}
