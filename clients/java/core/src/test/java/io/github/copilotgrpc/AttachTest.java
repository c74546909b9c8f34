package io.github.copilotgrpc;

import static io.github.copilotgrpc.FakeServer.permissionCallback;
import static io.github.copilotgrpc.FakeServer.position;
import static io.github.copilotgrpc.FakeServer.refusal;
import static io.github.copilotgrpc.FakeServer.soon;
import static io.github.copilotgrpc.FakeServer.toolCallback;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.github.copilotgrpc.FakeServer.Attached;
import io.github.copilotgrpc.bridge.v1.AttachDone;
import io.github.copilotgrpc.bridge.v1.AttachFailed;
import io.github.copilotgrpc.bridge.v1.AttachOpening;
import io.github.copilotgrpc.bridge.v1.AttachResponse;
import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.bridge.v1.CallbackKind;
import io.github.copilotgrpc.bridge.v1.CallbackOutcome;
import io.github.copilotgrpc.bridge.v1.CallbackResolved;
import io.github.copilotgrpc.bridge.v1.ErrorReason;
import io.github.copilotgrpc.bridge.v1.Failure;
import io.github.copilotgrpc.bridge.v1.ReadCallbackResponse;
import io.github.copilotgrpc.bridge.v1.SubscribeResponse;
import io.github.copilotgrpc.cli.v1.CallbackProviderTokenServiceGetTokenRequest;
import io.github.copilotgrpc.cli.v1.CallbackProviderTokenServiceGetTokenResponse;
import io.github.copilotgrpc.errors.CopilotException;
import io.github.copilotgrpc.errors.SessionExistsException;
import io.grpc.Status;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The Attach stream: opening, callbacks and answers. */
class AttachTest {
	private record Weather(String city, Optional<Integer> days) {}

	private record Nothing() {}

	private static final Tool WEATHER = Tool.of("weather", "Tells the weather.", Weather.class,
			query -> "rain in " + query.city() + " for " + query.days().orElse(1));

	private FakeServer fake;
	private CopilotClient client;
	private Attached stream;

	@BeforeEach
	void connect() throws Exception {
		fake = new FakeServer();
		client = fake.builder().name("tests").connect();
	}

	@AfterEach
	void close() throws Exception {
		fake.close();
		client.close();
	}

	private CopilotSession open(SessionOptions options) throws Exception {
		CompletableFuture<CopilotSession> opening = client.createSessionAsync(options);
		stream = fake.attached();
		return soon(opening);
	}

	private static SessionOptions with(Tool... tools) {
		return new SessionOptions().tools(tools);
	}

	@Test
	void firstFrameDeclaresEverything() throws Exception {
		CopilotSession session = open(with(WEATHER).onPermission(Permissions.approveAll())
				.onUserInput(question -> "yes").hook(HookType.PRE_TOOL_USE, hook -> null)
				.onRaw("new.thing", request -> List.of()).model("m1").grace(Duration.ofSeconds(7)).sessionId("given")
				.callbackTimeout(Duration.ofSeconds(2)));
		var start = stream.request;
		assertEquals("given", start.getCreate().getSessionId());
		assertEquals("m1", start.getCreate().getConfig().getModel());
		assertFalse(start.getCreate().getRequestId().isEmpty());
		assertEquals(2, start.getCreate().getCallbackTimeout().getSeconds());
		assertEquals("tests", start.getName());
		assertEquals(7, start.getGrace().getSeconds());
		assertTrue(start.getFilter().getExcludeAll());
		assertEquals(List.of("weather"), start.getToolsList().stream().map(tool -> tool.getName()).toList());
		assertEquals(List.of(CallbackKind.CALLBACK_KIND_USER_INPUT, CallbackKind.CALLBACK_KIND_HOOK),
				start.getHandlers().getKindsList());
		assertTrue(start.getHandlers().getPermission());
		assertEquals(List.of("preToolUse"), start.getHandlers().getHookTypesList());
		assertEquals(List.of("new.thing"), start.getHandlers().getMethodsList());
		assertEquals("s1", session.id());
		assertEquals("p1", session.participantId());
		assertEquals("1/3", session.position().orElseThrow().toString());
	}

	@Test
	void openingFailsWithTheServersReason() {
		fake.refusals.add(refusal(Status.Code.ALREADY_EXISTS, "SESSION_EXISTS", "there is one", "create"));
		SessionExistsException error = assertThrows(SessionExistsException.class, () -> client.createSession());
		assertEquals("there is one", error.getMessage());
		assertEquals("create", error.field());
		assertEquals("s1", error.metadata().get("session_id"));
		assertEquals("SESSION_EXISTS", error.reason());
	}

	@Test
	void openingIsRepeatedWithTheSameRequestId() throws Exception {
		CompletableFuture<CopilotSession> opening = client.createSessionAsync(new SessionOptions());
		Attached first = soon(fake.attaches);
		first.cut(Status.Code.UNAVAILABLE);
		Attached second = fake.attached();
		soon(opening);
		assertEquals(first.request.getCreate().getRequestId(), second.request.getCreate().getRequestId());
	}

	@Test
	void openingIsCancelledWithItsFuture() throws Exception {
		CompletableFuture<CopilotSession> opening = client.createSessionAsync(new SessionOptions());
		Attached first = soon(fake.attaches);
		opening.cancel(true);
		soon(first.gone);
	}

	@Test
	void toolAnswersAndArgumentsAreChecked() throws Exception {
		AtomicInteger runs = new AtomicInteger();
		open(with(Tool.of("weather", "Tells the weather.", Weather.class, query -> "run " + runs.incrementAndGet())));
		stream.ask(toolCallback("a", "weather", "{\"place\": 1, \"days\": \"x\"}"));
		var refused = stream.answer().getAnswer().getTool().getResult();
		assertEquals("failure", refused.getResultType());
		assertEquals("The arguments do not fit the tool's schema: place: is unknown; city: is missing; "
				+ "days: expected an integer, got a string.", refused.getTextResultForLlm());
		assertEquals(0, runs.get());
		stream.done("a");
		stream.ask(toolCallback("b", "weather", "{\"city\": \"Rome\", \"days\": 2.0}"));
		assertEquals("run 1", stream.answer().getAnswer().getTool().getText());
	}

	@Test
	void failuresOfToolsAndHandlersHaveNoDetails() throws Exception {
		open(with(
				Tool.of("fails", "Fails.", Nothing.class, nothing -> {
					throw new ToolException("Closed on Sundays.");
				}),
				Tool.of("crashes", "Crashes.", Nothing.class, nothing -> {
					throw new IllegalStateException("/secret/path");
				}),
				Tool.of("odd", "Returns what JSON cannot hold.", Nothing.class, nothing -> new Object()),
				Tool.of("later", "Answers later.", Nothing.class,
						nothing -> CompletableFuture.supplyAsync(() -> List.of(1, "two")))
				).onPermission(request -> {
					throw new IllegalStateException("/secret/path");
				}));
		stream.ask(toolCallback("a", "fails", "{}"));
		assertEquals("Closed on Sundays.", stream.answer().getAnswer().getTool().getResult().getTextResultForLlm());
		stream.ask(toolCallback("b", "crashes", "{}"));
		assertTrue(stream.answer().getAnswer().getTool().hasException());
		stream.ask(toolCallback("c", "odd", "{}"));
		assertTrue(stream.answer().getAnswer().getTool().hasException());
		stream.ask(toolCallback("d", "later", "{}"));
		assertEquals("[1,\"two\"]", stream.answer().getAnswer().getTool().getText());
		stream.ask(permissionCallback("e"));
		assertEquals("the handler failed with IllegalStateException",
				stream.answer().getAnswer().getError().getMessage());
		stream.ask(toolCallback("f", "fails", "{"));
		assertTrue(stream.answer().getAnswer().getTool().getResult().getTextResultForLlm()
				.startsWith("The arguments are not valid JSON"));
	}

	@Test
	void blockedHandlersStallNothing() throws Exception {
		CountDownLatch release = new CountDownLatch(1);
		BlockingQueue<String> running = new LinkedBlockingQueue<>();
		open(with(Tool.of("wait", "Waits.", Weather.class, query -> {
			running.add(query.city());
			release.await();
			return query.city();
		})).maxConcurrentTools(1).onPermission(Permissions.approveAll()));
		stream.ask(toolCallback("a", "wait", "{\"city\": \"a\"}"));
		stream.ask(toolCallback("b", "wait", "{\"city\": \"b\"}"));
		assertEquals("a", soon(running));
		stream.ask(permissionCallback("p"));
		assertEquals("p", stream.answer().getCallbackId());
		assertTrue(running.isEmpty());
		release.countDown();
		assertEquals(Set.of("a", "b"), Set.of(stream.answer().getCallbackId(), stream.answer().getCallbackId()));
	}

	@Test
	void withdrawnCallbackInterruptsItsHandler() throws Exception {
		CountDownLatch entered = new CountDownLatch(1);
		CompletableFuture<Void> interrupted = new CompletableFuture<>();
		open(with(WEATHER, Tool.of("wait", "Waits.", Nothing.class, nothing -> {
			entered.countDown();
			try {
				new CountDownLatch(1).await();
			} catch (InterruptedException e) {
				interrupted.complete(null);
			}
			return "";
		})));
		stream.ask(toolCallback("c", "wait", "{}"));
		entered.await();
		stream.tell(SubscribeResponse.newBuilder().setCallbackResolved(CallbackResolved.newBuilder()
				.setCallbackId("c").setOutcome(CallbackOutcome.CALLBACK_OUTCOME_WITHDRAWN)));
		soon(interrupted);
		stream.ask(toolCallback("d", "weather", "{\"city\": \"Rome\"}"));
		assertEquals("d", stream.answer().getCallbackId());
	}

	@Test
	void doubledCallbackRunsOnce() throws Exception {
		CountDownLatch release = new CountDownLatch(1);
		AtomicInteger runs = new AtomicInteger();
		open(with(WEATHER, Tool.of("count", "Counts.", Nothing.class, nothing -> {
			int run = runs.incrementAndGet();
			release.await();
			return run;
		})));
		stream.ask(toolCallback("c", "count", "{}"));
		stream.ask(toolCallback("c", "count", "{}"));
		stream.ask(toolCallback("d", "weather", "{\"city\": \"Bern\"}"));
		assertEquals("d", stream.answer().getCallbackId());
		release.countDown();
		assertEquals("1", stream.answer().getAnswer().getTool().getText());
	}

	@Test
	void setToolsReplacesThem() throws Exception {
		CopilotSession session = open(with(WEATHER));
		Tool other = Tool.of("other", "Another one.", Nothing.class, nothing -> "other");
		CompletableFuture<Void> change = CompletableFuture.runAsync(() -> session.setTools(other));
		var command = stream.next().getCommand();
		assertEquals("other", command.getSetTools().getTools(0).getName());
		stream.send(AttachResponse.newBuilder()
				.setDone(AttachDone.newBuilder().setCommandId(command.getCommandId())).build());
		soon(change);
		stream.ask(toolCallback("a", "weather", "{\"city\": \"x\"}"));
		assertTrue(stream.answer().getAnswer().hasAbstain());
		stream.ask(toolCallback("b", "other", "{}"));
		assertEquals("other", stream.answer().getAnswer().getTool().getText());

		CompletableFuture<CopilotException> refused = CompletableFuture.supplyAsync(
				() -> assertThrows(CopilotException.class, () -> session.setTools(WEATHER)));
		command = stream.next().getCommand();
		Failure failure = Failure.newBuilder().setCode(3).setReason(ErrorReason.ERROR_REASON_TOOL_NAME_INVALID)
				.setMessage("bad name").build();
		stream.send(AttachResponse.newBuilder().setFailed(
				AttachFailed.newBuilder().setCommandId(command.getCommandId()).setFailure(failure)).build());
		assertEquals("TOOL_NAME_INVALID", soon(refused).reason());
		stream.ask(toolCallback("c", "other", "{}")); // the tools before
		assertEquals("other", stream.answer().getAnswer().getTool().getText());
	}

	@Test
	void refusedAnswers() throws Exception {
		open(with(WEATHER));
		stream.ask(toolCallback("c", "weather", "{\"city\": \"x\"}"));
		stream.answer();
		stream.failed("c", Status.Code.UNAVAILABLE, ErrorReason.ERROR_REASON_RUNTIME_LOST, "away");
		assertEquals("rain in x for 1", stream.answer().getAnswer().getTool().getText());
		stream.failed("c", Status.Code.INVALID_ARGUMENT, ErrorReason.ERROR_REASON_ANSWER_INVALID, "wrong");
		assertEquals("wrong", stream.answer().getAnswer().getError().getMessage());
		stream.failed("c", Status.Code.NOT_FOUND, ErrorReason.ERROR_REASON_CALLBACK_NOT_FOUND, "over");
		stream.ask(toolCallback("d", "weather", "{\"city\": \"y\"}"));
		assertEquals("d", stream.answer().getCallbackId());
	}

	@Test
	void largeCallbackIsReadInPieces() throws Exception {
		byte[] whole = toolCallback("c", "weather", "{\"city\": \"Large\"}").toByteArray();
		fake.readCallback = responses -> {
			for (int at = 0; at < whole.length; at += 10) {
				byte[] piece = Arrays.copyOfRange(whole, at, Math.min(whole.length, at + 10));
				responses.onNext(ReadCallbackResponse.newBuilder()
						.setChunk(ByteString.copyFrom(piece)).build());
			}
			responses.onCompleted();
		};
		open(with(WEATHER));
		stream.ask(Callback.newBuilder().setCallbackId("c").setSessionId("s1")
				.setKind(CallbackKind.CALLBACK_KIND_TOOL_CALL).setTotalBytes(5 << 20).build());
		assertEquals("rain in Large for 1", stream.answer().getAnswer().getTool().getText());
	}

	@Test
	void unknownFramesAndKindsAndCallbacksForOthersAreIgnored() throws Exception {
		open(with(WEATHER));
		byte[] unknown = {(byte) 0xfa, 0x3e, 0x03, 'n', 'e', 'w'};
		stream.send(AttachResponse.parseFrom(unknown));
		stream.send(AttachResponse.newBuilder().setStream(SubscribeResponse.parseFrom(unknown)).build());
		stream.ask(Callback.newBuilder().setCallbackId("x").setSessionId("s1").setKindValue(999).build());
		stream.ask(permissionCallback("p")); // no handler
		stream.ask(toolCallback("t", "weather", "{\"city\": \"x\"}"), false);
		stream.ask(toolCallback("c", "weather", "{\"city\": \"x\"}"));
		assertEquals("c", stream.answer().getCallbackId());
	}

	@Test
	void answersOfASessionThatIsBeingOpened() throws Exception {
		CompletableFuture<CopilotSession> opening = client.createSessionAsync(
				new SessionOptions().on(CallbackType.PROVIDER_TOKEN, request ->
						CallbackProviderTokenServiceGetTokenResponse.newBuilder().setToken("tok").build()));
		Attached first = soon(fake.attaches);
		first.send(AttachResponse.newBuilder().setOpening(AttachOpening.newBuilder()
				.setParticipantId("p1").setParticipantToken("t").setSessionId("s1")).build());
		first.ask(Callback.newBuilder().setCallbackId("g").setSessionId("s1")
				.setKind(CallbackKind.CALLBACK_KIND_PROVIDER_TOKEN)
				.setProviderToken(CallbackProviderTokenServiceGetTokenRequest.newBuilder().setProviderName("p")).build());
		assertEquals("tok", first.answer().getAnswer().getProviderToken().getToken());
		assertFalse(opening.isDone());
		first.start("p1");
		soon(opening);
	}

	@Test
	void manyCallbacksAreAnsweredOnce() throws Exception {
		open(with(WEATHER));
		int count = 500;
		for (int i = 0; i < count; i++) {
			stream.ask(toolCallback("c" + i, "weather", "{\"city\": \"x\"}"));
		}
		List<String> answered = new ArrayList<>();
		for (int i = 0; i < count; i++) {
			String id = stream.answer().getCallbackId();
			answered.add(id);
			stream.done(id);
		}
		assertEquals(count, Set.copyOf(answered).size());
	}
}
