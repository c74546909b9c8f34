package io.github.copilotgrpc;

import com.google.gson.Gson;
import io.github.copilotgrpc.bridge.v1.Answer;
import io.github.copilotgrpc.bridge.v1.AttachRequest;
import io.github.copilotgrpc.bridge.v1.AttachResponse;
import io.github.copilotgrpc.bridge.v1.AttachStart;
import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.bridge.v1.CallbackAnswer;
import io.github.copilotgrpc.bridge.v1.CallbackServiceGrpc;
import io.github.copilotgrpc.bridge.v1.CreateSessionRequest;
import io.github.copilotgrpc.bridge.v1.EventServiceGrpc;
import io.github.copilotgrpc.bridge.v1.SessionCursor;
import io.github.copilotgrpc.bridge.v1.SubscribeRequest;
import io.github.copilotgrpc.bridge.v1.SubscribeResponse;
import io.github.copilotgrpc.bridge.v1.ToolAnswer;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * The driver of this library for {@code make bench-libraries}: tool calls and events with the library, and with bare stubs
 * on the same channel.
 */
public final class LibraryBench {
	record Text(String text) {}

	private LibraryBench() {}

	/** Reads operations from the standard input. The argument is the server. */
	public static void main(String[] arguments) throws IOException {
		var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
		for (String line = in.readLine(); line != null; line = in.readLine()) {
			String[] words = line.split(" ");
			boolean stubs = words[0].equals("stubs");
			try (CopilotClient client = CopilotClient.connect(arguments[0])) {
				if (words[1].equals("call")) {
					System.out.println(stubs ? stubCalls(client) : libraryCalls(client));
				} else {
					String size = words[1].substring("event".length());
					System.out.println(stubs ? stubEvents(client, size) : libraryEvents(client, size));
				}
			}
		}
	}

	private static int stubCalls(CopilotClient client) {
		var gson = new Gson();
		var count = new AtomicInteger();
		var ended = new CompletableFuture<Void>();
		var requests = CallbackServiceGrpc.newStub(client.channel())
				.attach(new Responses<AttachRequest, AttachResponse>(ended) {
					@Override
					public void onNext(AttachResponse response) {
						if (!response.getStream().hasCallbackRequested()) {
							return;
						}
						Callback callback = response.getStream().getCallbackRequested().getCallback();
						Text arguments = gson.fromJson(callback.getToolCall().getArgumentsJson(), Text.class);
						var answer = Answer.newBuilder().setTool(ToolAnswer.newBuilder().setText(arguments.text()));
						var given = CallbackAnswer.newBuilder().setCallbackId(callback.getCallbackId()).setAnswer(answer);
						call.onNext(AttachRequest.newBuilder().setAnswer(given).build());
						count.incrementAndGet();
					}
				});
		var start = AttachStart.newBuilder().setCreate(CreateSessionRequest.getDefaultInstance());
		requests.onNext(AttachRequest.newBuilder().setStart(start).build());
		ended.join();
		return count.get();
	}

	private static int libraryCalls(CopilotClient client) {
		var count = new AtomicInteger();
		Tool echo = Tool.of("echo", "Repeats a text.", Text.class, arguments -> {
			count.incrementAndGet();
			return arguments.text();
		});
		client.createSession(new SessionOptions().tools(echo)).ended().join();
		return count.get();
	}

	private static int stubEvents(CopilotClient client, String size) {
		var count = new AtomicInteger();
		var ended = new CompletableFuture<Void>();
		var request = SubscribeRequest.newBuilder().addSessions(SessionCursor.newBuilder().setSessionId(size)).build();
		EventServiceGrpc.newStub(client.channel())
				.subscribe(request, new Responses<SubscribeRequest, SubscribeResponse>(ended) {
					@Override
					public void onNext(SubscribeResponse response) {
						response.getEvents().getEventsList().forEach(event -> {
							if (!event.getEvent().getAssistantMessage().getContent().isEmpty()) {
								count.incrementAndGet();
							}
						});
					}
				});
		ended.join();
		return count.get();
	}

	private static int libraryEvents(CopilotClient client, String size) {
		int count = 0;
		try (var events = client.session(size).events()) {
			for (StreamItem item : events) {
				if (item instanceof Event event && !event.message().getEvent().getAssistantMessage().getContent().isEmpty()) {
					count++;
				}
			}
		}
		return count;
	}

	/** Responses until the end of a call. */
	private abstract static class Responses<Q, R> implements ClientResponseObserver<Q, R> {
		private final CompletableFuture<Void> ended;
		protected ClientCallStreamObserver<Q> call;

		Responses(CompletableFuture<Void> ended) {
			this.ended = ended;
		}

		@Override
		public void beforeStart(ClientCallStreamObserver<Q> started) {
			call = started;
		}

		@Override
		public void onError(Throwable error) {
			ended.completeExceptionally(error);
		}

		@Override
		public void onCompleted() {
			ended.complete(null);
		}
	}
}
