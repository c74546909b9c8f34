package io.github.copilotgrpc;

import com.google.protobuf.Any;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.github.copilotgrpc.bridge.v1.AbortRequest;
import io.github.copilotgrpc.bridge.v1.AbortResponse;
import io.github.copilotgrpc.bridge.v1.AttachDone;
import io.github.copilotgrpc.bridge.v1.AttachFailed;
import io.github.copilotgrpc.bridge.v1.AttachRequest;
import io.github.copilotgrpc.bridge.v1.AttachResponse;
import io.github.copilotgrpc.bridge.v1.AttachStart;
import io.github.copilotgrpc.bridge.v1.AttachStarted;
import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.bridge.v1.CallbackAnswer;
import io.github.copilotgrpc.bridge.v1.CallbackKind;
import io.github.copilotgrpc.bridge.v1.CallbackRequested;
import io.github.copilotgrpc.bridge.v1.CallbackServiceGrpc;
import io.github.copilotgrpc.bridge.v1.CloseReason;
import io.github.copilotgrpc.bridge.v1.ErrorReason;
import io.github.copilotgrpc.bridge.v1.EventServiceGrpc;
import io.github.copilotgrpc.bridge.v1.ExportSessionRequest;
import io.github.copilotgrpc.bridge.v1.ExportSessionResponse;
import io.github.copilotgrpc.bridge.v1.Failure;
import io.github.copilotgrpc.bridge.v1.GetServerInfoRequest;
import io.github.copilotgrpc.bridge.v1.GetServerInfoResponse;
import io.github.copilotgrpc.bridge.v1.GetSessionRequest;
import io.github.copilotgrpc.bridge.v1.GetSessionResponse;
import io.github.copilotgrpc.bridge.v1.ImportSessionRequest;
import io.github.copilotgrpc.bridge.v1.ImportSessionResponse;
import io.github.copilotgrpc.bridge.v1.LeaveRequest;
import io.github.copilotgrpc.bridge.v1.LeaveResponse;
import io.github.copilotgrpc.bridge.v1.ReadCallbackRequest;
import io.github.copilotgrpc.bridge.v1.ReadCallbackResponse;
import io.github.copilotgrpc.bridge.v1.ResolveRequest;
import io.github.copilotgrpc.bridge.v1.ResolveResponse;
import io.github.copilotgrpc.bridge.v1.RunRequest;
import io.github.copilotgrpc.bridge.v1.RunResponse;
import io.github.copilotgrpc.bridge.v1.RuntimeServiceGrpc;
import io.github.copilotgrpc.bridge.v1.SendAndWaitRequest;
import io.github.copilotgrpc.bridge.v1.SendAndWaitResponse;
import io.github.copilotgrpc.bridge.v1.SendStreamRequest;
import io.github.copilotgrpc.bridge.v1.SendStreamResponse;
import io.github.copilotgrpc.bridge.v1.Session;
import io.github.copilotgrpc.bridge.v1.SessionServiceGrpc;
import io.github.copilotgrpc.bridge.v1.SubscribeRequest;
import io.github.copilotgrpc.bridge.v1.SubscribeResponse;
import io.github.copilotgrpc.bridge.v1.SubscriptionClosed;
import io.github.copilotgrpc.bridge.v1.SubscriptionStarted;
import io.github.copilotgrpc.bridge.v1.WatchPendingRequest;
import io.github.copilotgrpc.bridge.v1.WatchPendingResponse;
import io.github.copilotgrpc.cli.v1.ExternalToolRequestedData;
import io.github.copilotgrpc.cli.v1.PermissionRequest;
import io.github.copilotgrpc.cli.v1.PermissionRequestRead;
import io.github.copilotgrpc.cli.v1.PermissionRequestedData;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** A server whose streams the test plays. */
final class FakeServer implements AutoCloseable {
	/** Bounds every wait of a test. It is far more than anything takes. */
	static final Duration PATIENCE = Duration.ofSeconds(120);
	/** For clients whose server has ended. */
	private static final Duration CLOSE_TIMEOUT = Duration.ofMillis(100);
	static final Reconnect QUICKLY = new Reconnect(Duration.ofMillis(1), Duration.ofMillis(5), PATIENCE);

	final BlockingQueue<Attached> attaches = new LinkedBlockingQueue<>();
	final BlockingQueue<Played<SubscribeRequest, SubscribeResponse>> subscriptions = new LinkedBlockingQueue<>();
	final BlockingQueue<Played<RunRequest, RunResponse>> runs = new LinkedBlockingQueue<>();
	final BlockingQueue<Played<SendAndWaitRequest, SendAndWaitResponse>> waits = new LinkedBlockingQueue<>();
	final BlockingQueue<Played<WatchPendingRequest, WatchPendingResponse>> watches = new LinkedBlockingQueue<>();
	final BlockingQueue<Played<ExportSessionRequest, ExportSessionResponse>> exports = new LinkedBlockingQueue<>();
	final BlockingQueue<Uploaded<ImportSessionRequest, ImportSessionResponse>> imports = new LinkedBlockingQueue<>();
	final BlockingQueue<Uploaded<SendStreamRequest, SendStreamResponse>> uploads = new LinkedBlockingQueue<>();
	final BlockingQueue<AbortRequest> aborts = new LinkedBlockingQueue<>();
	final BlockingQueue<ResolveRequest> resolves = new LinkedBlockingQueue<>();
	final BlockingQueue<Played<LeaveRequest, LeaveResponse>> leaves = new LinkedBlockingQueue<>();
	final BlockingQueue<Metadata> headers = new LinkedBlockingQueue<>();
	/** Errors of the next Attach calls, before they reach the test, and the start frames of these calls. */
	final Queue<StatusRuntimeException> refusals = new ConcurrentLinkedQueue<>();
	final BlockingQueue<AttachStart> refused = new LinkedBlockingQueue<>();
	volatile Consumer<StreamObserver<ReadCallbackResponse>> readCallback = observer -> { };
	volatile String version = "0.1.0";
	/** Error of GetSession. */
	volatile StatusRuntimeException sessionRefusal = Status.UNIMPLEMENTED.asRuntimeException();
	private final Server server;

	FakeServer() throws IOException {
		this(builder -> { });
	}

	FakeServer(Consumer<NettyServerBuilder> customizer) throws IOException {
		NettyServerBuilder builder = NettyServerBuilder.forAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0))
				.addService(new Callbacks()).addService(new Events()).addService(new Sessions()).addService(new Runtimes())
				.intercept(new ServerInterceptor() {
					@Override
					public <Q, A> ServerCall.Listener<Q> interceptCall(
							ServerCall<Q, A> call, Metadata received, ServerCallHandler<Q, A> next) {
						headers.add(received);
						return next.startCall(call, received);
					}
				});
		customizer.accept(builder);
		server = builder.build().start();
	}

	String target() {
		return "127.0.0.1:" + server.getPort();
	}

	ClientBuilder builder() {
		return CopilotClient.builder().target(target()).reconnect(QUICKLY).closeTimeout(CLOSE_TIMEOUT);
	}

	CopilotClient connect() {
		return builder().connect();
	}

	@Override
	public void close() {
		server.shutdownNow();
	}

	static <T> T soon(BlockingQueue<T> queue) throws InterruptedException {
		T value = queue.poll(PATIENCE.toSeconds(), TimeUnit.SECONDS);
		if (value == null) {
			throw new AssertionError("nothing arrived");
		}
		return value;
	}

	static <T> T soon(CompletableFuture<T> future) throws Exception {
		return future.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
	}

	/** The next Attach stream, started. */
	Attached attached(Callback... pending) throws InterruptedException {
		Attached stream = soon(attaches);
		stream.start("p1", pending);
		return stream;
	}

	/** A stream of responses in the hands of the test. */
	static class Played<Q, A> {
		final Q request;
		final CompletableFuture<Void> gone = new CompletableFuture<>();
		private final StreamObserver<A> responses;

		Played(Q request, StreamObserver<A> responses) {
			this.request = request;
			this.responses = responses;
			((ServerCallStreamObserver<A>) responses).setOnCancelHandler(() -> gone.complete(null));
		}

		/** For a stream whose requests arrive later. */
		Played(Q request, StreamObserver<A> responses, CompletableFuture<Void> cancelled) {
			this.request = request;
			this.responses = responses;
			cancelled.thenRun(() -> gone.complete(null));
		}

		synchronized void send(A frame) {
			responses.onNext(frame);
		}

		/** Ends the stream like a broken connection: with a code without a reason. */
		synchronized void cut(Status.Code code) {
			responses.onError(code.toStatus().withDescription("cut").asRuntimeException());
		}

		synchronized void fail(StatusRuntimeException error) {
			responses.onError(error);
		}

		synchronized void end() {
			responses.onCompleted();
		}
	}

	/** An Attach stream. */
	static final class Attached extends Played<AttachStart, AttachResponse> {
		final BlockingQueue<AttachRequest> received = new LinkedBlockingQueue<>();

		Attached(AttachStart start, StreamObserver<AttachResponse> responses, CompletableFuture<Void> cancelled) {
			super(start, responses, cancelled);
		}

		void start(String participantId, Callback... pending) {
			Session session = Session.newBuilder().setSessionId("s1").setPosition(position(1, 3)).build();
			send(AttachResponse.newBuilder().setStarted(AttachStarted.newBuilder().setParticipantId(participantId)
					.setParticipantToken("secret").setSession(session)).build());
			tell(SubscribeResponse.newBuilder().setStarted(SubscriptionStarted.newBuilder()
					.setPosition(position(1, 3)).setSession(session).addAllPendingCallbacks(List.of(pending))));
		}

		/** Sends a frame about the session. */
		void tell(SubscribeResponse.Builder frame) {
			send(AttachResponse.newBuilder().setStream(frame.setSessionId("s1")).build());
		}

		void ask(Callback callback) {
			ask(callback, true);
		}

		void ask(Callback callback, boolean offered) {
			tell(SubscribeResponse.newBuilder().setCallbackRequested(
					CallbackRequested.newBuilder().setCallback(callback).setOffered(offered)));
		}

		AttachRequest next() throws InterruptedException {
			return soon(received);
		}

		CallbackAnswer answer() throws InterruptedException {
			AttachRequest frame = next();
			if (!frame.hasAnswer()) {
				throw new AssertionError("no answer: " + frame);
			}
			return frame.getAnswer();
		}

		void done(String callbackId) {
			send(AttachResponse.newBuilder().setDone(
					AttachDone.newBuilder().setCallbackId(callbackId).setPosition(position(1, 9))).build());
		}

		void failed(String callbackId, Status.Code code, ErrorReason reason, String text) {
			Failure failure =
					Failure.newBuilder().setCode(code.value()).setReason(reason).setMessage(text).build();
			send(AttachResponse.newBuilder().setFailed(
					AttachFailed.newBuilder().setCallbackId(callbackId).setFailure(failure)).build());
		}

		void closed(CloseReason reason) {
			tell(SubscribeResponse.newBuilder().setClosed(SubscriptionClosed.newBuilder().setReason(reason)));
		}

		/** Lets the participant leave. */
		boolean goodbye() throws InterruptedException {
			AttachRequest frame = next();
			if (!frame.hasLeave()) {
				throw new AssertionError("no goodbye: " + frame);
			}
			closed(CloseReason.CLOSE_REASON_LEFT);
			end();
			return frame.getLeave().getDisconnect();
		}
	}

	private final class Callbacks extends CallbackServiceGrpc.CallbackServiceImplBase {
		@Override
		public StreamObserver<AttachRequest> attach(StreamObserver<AttachResponse> responses) {
			StatusRuntimeException refusal = refusals.poll();
			CompletableFuture<Void> cancelled = new CompletableFuture<>();
			((ServerCallStreamObserver<AttachResponse>) responses).setOnCancelHandler(() -> cancelled.complete(null));
			return new StreamObserver<>() {
				private Attached stream;

				@Override
				public void onNext(AttachRequest request) {
					if (refusal != null) {
						refused.add(request.getStart());
						responses.onError(refusal);
					} else if (stream == null) {
						stream = new Attached(request.getStart(), responses, cancelled);
						attaches.add(stream);
					} else {
						stream.received.add(request);
					}
				}

				@Override
				public void onError(Throwable error) {
					cancelled.complete(null);
				}

				@Override
				public void onCompleted() {
					cancelled.complete(null);
				}
			};
		}

		@Override
		public void readCallback(ReadCallbackRequest request, StreamObserver<ReadCallbackResponse> responses) {
			readCallback.accept(responses);
		}

		@Override
		public void watchPending(WatchPendingRequest request, StreamObserver<WatchPendingResponse> responses) {
			watches.add(new Played<>(request, responses));
		}

		@Override
		public void leave(LeaveRequest request, StreamObserver<LeaveResponse> responses) {
			leaves.add(new Played<>(request, responses));
		}

		@Override
		public void resolve(ResolveRequest request, StreamObserver<ResolveResponse> responses) {
			resolves.add(request);
			responses.onNext(ResolveResponse.getDefaultInstance());
			responses.onCompleted();
		}
	}

	private final class Events extends EventServiceGrpc.EventServiceImplBase {
		@Override
		public void subscribe(SubscribeRequest request, StreamObserver<SubscribeResponse> responses) {
			subscriptions.add(new Played<>(request, responses));
		}
	}

	private final class Sessions extends SessionServiceGrpc.SessionServiceImplBase {
		@Override
		public void getSession(GetSessionRequest request, StreamObserver<GetSessionResponse> responses) {
			responses.onError(sessionRefusal);
		}

		@Override
		public void abort(AbortRequest request, StreamObserver<AbortResponse> responses) {
			aborts.add(request);
			responses.onNext(AbortResponse.getDefaultInstance());
			responses.onCompleted();
		}

		@Override
		public void exportSession(ExportSessionRequest request, StreamObserver<ExportSessionResponse> responses) {
			exports.add(new Played<>(request, responses));
		}

		@Override
		public StreamObserver<ImportSessionRequest> importSession(StreamObserver<ImportSessionResponse> responses) {
			return Uploaded.take(responses, imports);
		}

		@Override
		public StreamObserver<SendStreamRequest> sendStream(StreamObserver<SendStreamResponse> responses) {
			return Uploaded.take(responses, uploads);
		}

		@Override
		public void run(RunRequest request, StreamObserver<RunResponse> responses) {
			runs.add(new Played<>(request, responses));
		}

		@Override
		public void sendAndWait(SendAndWaitRequest request, StreamObserver<SendAndWaitResponse> responses) {
			waits.add(new Played<>(request, responses));
		}
	}

	private final class Runtimes extends RuntimeServiceGrpc.RuntimeServiceImplBase {
		@Override
		public void getServerInfo(GetServerInfoRequest request, StreamObserver<GetServerInfoResponse> responses) {
			responses.onNext(GetServerInfoResponse.newBuilder().setVersion(version).build());
			responses.onCompleted();
		}
	}

	static io.github.copilotgrpc.bridge.v1.Position position(long epoch, long seq) {
		return io.github.copilotgrpc.bridge.v1.Position.newBuilder().setEpoch(epoch).setSeq(seq).build();
	}

	/** An error as the server sends it. */
	static StatusRuntimeException refusal(Status.Code code, String reason, String text, String field) {
		com.google.rpc.Status status = com.google.rpc.Status.newBuilder().setCode(code.value()).setMessage(text)
				.addDetails(Any.pack(ErrorInfo.newBuilder().setDomain("copilot-grpc").setReason(reason)
						.putAllMetadata(Map.of("session_id", "s1")).build()))
				.addDetails(Any.pack(BadRequest.newBuilder().addFieldViolations(
						BadRequest.FieldViolation.newBuilder().setField(field)).build()))
				.addDetails(Any.pack(RetryInfo.newBuilder().setRetryDelay(
						com.google.protobuf.Duration.newBuilder().setNanos(1_000_000)).build())).build();
		Metadata trailers = new Metadata();
		trailers.put(Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER), status.toByteArray());
		return code.toStatus().withDescription(text).asRuntimeException(trailers);
	}

	static Callback toolCallback(String callbackId, String name, String arguments) {
		return Callback.newBuilder().setCallbackId(callbackId).setSessionId("s1")
				.setKind(CallbackKind.CALLBACK_KIND_TOOL_CALL)
				.setToolCall(ExternalToolRequestedData.newBuilder()
						.setToolName(name).setToolCallId("t1").setArgumentsJson(arguments)).build();
	}

	static Callback permissionCallback(String callbackId) {
		PermissionRequest request =
				PermissionRequest.newBuilder().setRead(PermissionRequestRead.getDefaultInstance()).build();
		return Callback.newBuilder().setCallbackId(callbackId).setSessionId("s1")
				.setKind(CallbackKind.CALLBACK_KIND_PERMISSION)
				.setPermission(PermissionRequestedData.newBuilder()
						.setRequestId(callbackId).setPermissionRequest(request)).build();
	}
}
