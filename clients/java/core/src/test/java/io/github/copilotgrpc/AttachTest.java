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
import io.github.copilotgrpc.bridge.v1.AttachStart;
import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.bridge.v1.CallbackKind;
import io.github.copilotgrpc.bridge.v1.CallbackOutcome;
import io.github.copilotgrpc.bridge.v1.CallbackResolved;
import io.github.copilotgrpc.bridge.v1.ErrorReason;
import io.github.copilotgrpc.bridge.v1.Failure;
import io.github.copilotgrpc.bridge.v1.RawCallback;
import io.github.copilotgrpc.bridge.v1.ReadCallbackResponse;
import io.github.copilotgrpc.bridge.v1.SubscribeResponse;
import io.github.copilotgrpc.cli.v1.CallbackProviderTokenServiceGetTokenRequest;
import io.github.copilotgrpc.cli.v1.CallbackProviderTokenServiceGetTokenResponse;
import io.github.copilotgrpc.cli.v1.CallbackUserInputServiceRequestRequest;
import io.github.copilotgrpc.cli.v1.CommandExecuteData;
import io.github.copilotgrpc.cli.v1.ElicitationRequestedData;
import io.github.copilotgrpc.cli.v1.HookInvocation;
import io.github.copilotgrpc.cli.v1.HookPreToolUseInput;
import io.github.copilotgrpc.cli.v1.SessionConfig;
import io.github.copilotgrpc.errors.CopilotException;
import io.github.copilotgrpc.errors.SessionExistsException;
import io.grpc.Status;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

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
		assertTrue(start.getCreate().getConfig().getStreaming());
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
		assertEquals("The arguments do not fit: place: is unknown; city: is missing; "
				+ "days: expected an integer, got a string.", refused.getTextResultForLlm());
		assertEquals(0, runs.get());
		stream.done("a");
		stream.ask(toolCallback("b", "weather", "{\"city\": \"Rome\", \"days\": 2.0}"));
		assertEquals("run 1", stream.answer().getAnswer().getTool().getText());
	}

	static Stream<Arguments> streaming() {
		return Stream.of(
				Arguments.of(new SessionOptions(), Optional.of(true)),
				Arguments.of(new SessionOptions().streaming(false), Optional.of(false)),
				Arguments.of(new SessionOptions().configure(config -> config.setStreaming(false)), Optional.of(false)),
				Arguments.of(new SessionOptions().clear("streaming"), Optional.empty()),
				Arguments.of(new SessionOptions().clear("streaming").streaming(true), Optional.of(true)));
	}

	@ParameterizedTest
	@MethodSource("streaming")
	void sessionsStreamUnlessTheOptionsSayOtherwise(SessionOptions options, Optional<Boolean> want) throws Exception {
		CompletableFuture<CopilotSession> creating = client.createSessionAsync(options);
		SessionConfig created = fake.attached().request.getCreate().getConfig();
		soon(creating);
		CompletableFuture<CopilotSession> resuming = client.resumeSessionAsync("s1", options);
		SessionConfig resumed = fake.attached().request.getResume().getConfig();
		soon(resuming);
		for (SessionConfig config : List.of(created, resumed)) {
			assertEquals(want, config.hasStreaming() ? Optional.of(config.getStreaming()) : Optional.empty());
		}
	}

	private void refuse(String... reasons) {
		for (String reason : reasons) {
			Status.Code code = reason.equals("SESSION_EXISTS") ? Status.Code.ALREADY_EXISTS : Status.Code.NOT_FOUND;
			fake.refusals.add(refusal(code, reason, "refused", "session_id"));
		}
	}

	private static String step(AttachStart start) {
		return start.hasResume() ? "resume " + start.getResume().getSessionId()
				: "create " + start.getCreate().getSessionId();
	}

	@Test
	void openResumesOrCreates() throws Exception {
		SessionOptions options = new SessionOptions().sessionId("ignored").label("team", "a").nodeLabel("disk", "b");
		CompletableFuture<CopilotSession> opening = client.openSessionAsync("s1", options);
		assertEquals("resume s1", step(fake.attached().request));
		soon(opening);

		refuse("SESSION_NOT_FOUND");
		opening = client.openSessionAsync("s1", options);
		AttachStart created = fake.attached().request;
		assertEquals("create s1", step(created));
		assertEquals("a", created.getCreate().getLabelsOrThrow("team"));
		assertEquals("b", created.getCreate().getNodeLabelsOrThrow("disk"));
		assertEquals("resume s1", step(soon(fake.refused)));
		soon(opening);

		refuse("SESSION_NOT_FOUND", "SESSION_EXISTS"); // another program was faster
		opening = client.openSessionAsync("s1", options);
		assertEquals("resume s1", step(fake.attached().request));
		assertEquals("resume s1", step(soon(fake.refused)));
		assertEquals("create s1", step(soon(fake.refused)));
		soon(opening);
	}

	@Test
	void openEndsWithTheErrorOfTheLastAttempt() {
		refuse("SESSION_DAMAGED");
		assertEquals("SESSION_DAMAGED", assertThrows(CopilotException.class,
				() -> client.openSession("s1", new SessionOptions())).reason());
		assertEquals(1, fake.refused.size());
		for (int i = 0; i < 10; i++) {
			refuse("SESSION_NOT_FOUND", "SESSION_EXISTS");
		}
		assertThrows(SessionExistsException.class, () -> client.openSession("s1", new SessionOptions()));
		assertEquals(11, fake.refused.size());
	}

	@Test
	void openingIsCancelledWithTheAttemptThatRuns() throws Exception {
		refuse("SESSION_NOT_FOUND");
		CompletableFuture<CopilotSession> opening = client.openSessionAsync("s1", new SessionOptions());
		Attached creating = soon(fake.attaches);
		opening.cancel(true);
		soon(creating.gone);
	}

	private static Tool failing(String name, Throwable error) {
		return Tool.of(name, "Fails.", Nothing.class, nothing -> CompletableFuture.failedFuture(error));
	}

	private static <T> T crash() {
		throw new IllegalStateException("/secret/path");
	}

	@Test
	void failuresHaveNoDetailsForTheModelAndAreLogged() throws Exception {
		open(with(
				failing("fails", new ToolException("Closed on Sundays.")),
				Tool.of("crashes", "Crashes.", Nothing.class, nothing -> crash()),
				Tool.of("overflows", "Overflows.", Nothing.class, nothing -> {
					throw new StackOverflowError("/secret/stack");
				}),
				failing("late", new IOException("/secret/file")),
				Tool.of("odd", "Returns what JSON cannot hold.", Nothing.class, nothing -> new Object()),
				Tool.of("later", "Answers later.", Nothing.class,
						nothing -> CompletableFuture.supplyAsync(() -> List.of(1, "two"))))
				.onPermission(request -> crash()).onUserInput(question -> crash())
				.onElicitation(form -> {
					throw new HandlerException("no forms here");
				})
				.command("deploy", "Deploys.", argument -> crash())
				.hook(HookType.PRE_TOOL_USE, hook -> crash()).onRaw("new.thing", request -> crash()));
		Map<String, String> texts = new LinkedHashMap<>();
		try (Logged logged = new Logged()) {
			for (String tool : List.of("fails", "crashes", "overflows", "late", "odd")) {
				stream.ask(toolCallback(tool, tool, "{}"));
				var result = stream.answer().getAnswer().getTool().getResult();
				assertEquals("failure", result.getResultType());
				texts.put(tool, result.getTextResultForLlm() + " (" + result.getError() + ")");
			}
			stream.ask(toolCallback("d", "later", "{}"));
			assertEquals("[1,\"two\"]", stream.answer().getAnswer().getTool().getText());
			stream.ask(toolCallback("f", "fails", "{"));
			texts.put("no JSON", stream.answer().getAnswer().getTool().getResult().getTextResultForLlm());
			stream.ask(permissionCallback("permission"));
			texts.put("permission", stream.answer().getAnswer().getError().getMessage());
			Callback.Builder callback = Callback.newBuilder().setSessionId("s1");
			for (Callback.Builder other : List.of(
					callback.clone().setKind(CallbackKind.CALLBACK_KIND_USER_INPUT)
							.setUserInput(CallbackUserInputServiceRequestRequest.getDefaultInstance()),
					callback.clone().setKind(CallbackKind.CALLBACK_KIND_ELICITATION)
							.setElicitation(ElicitationRequestedData.getDefaultInstance()),
					callback.clone().setKind(CallbackKind.CALLBACK_KIND_COMMAND)
							.setCommand(CommandExecuteData.newBuilder().setCommandName("deploy")),
					callback.clone().setKind(CallbackKind.CALLBACK_KIND_HOOK).setHook(HookInvocation.newBuilder()
							.setHookType("preToolUse").setPreToolUse(HookPreToolUseInput.getDefaultInstance())),
					callback.clone().setKind(CallbackKind.CALLBACK_KIND_RAW)
							.setRaw(RawCallback.newBuilder().setMethod("new.thing").setParamsJson("{}")))) {
				String id = other.getRequestCase().name().toLowerCase(Locale.ROOT);
				stream.ask(other.setCallbackId(id).build());
				texts.put(id, stream.answer().getAnswer().getError().getMessage());
			}
			assertEquals(Map.ofEntries(
					Map.entry("fails", "Closed on Sundays. (Closed on Sundays.)"),
					Map.entry("crashes", "The tool failed. (java.lang.IllegalStateException: /secret/path)"),
					Map.entry("overflows", "The tool failed. (java.lang.StackOverflowError: /secret/stack)"),
					Map.entry("late", "The tool failed. (java.io.IOException: /secret/file)"),
					Map.entry("odd", "The tool ran, but its result cannot be encoded as JSON."
							+ " (java.lang.IllegalArgumentException: JSON cannot hold a"
							+ " java.lang.Object: use records, lists, maps, strings, numbers and booleans)"),
					Map.entry("no JSON", "The arguments do not fit: they are not valid JSON."),
					Map.entry("permission", "The handler failed."), Map.entry("user_input", "The handler failed."),
					Map.entry("elicitation", "no forms here"), Map.entry("command", "/secret/path"),
					Map.entry("hook", "The handler failed."), Map.entry("raw", "The handler failed.")), texts);
			assertEquals(List.of(
					"WARNING tool fails failed: session s1, callback fails: Closed on Sundays.",
					"WARNING tool crashes failed: session s1, callback crashes: /secret/path with a stack",
					"WARNING tool overflows failed: session s1, callback overflows: /secret/stack with a stack",
					"WARNING tool late failed: session s1, callback late: /secret/file with a stack",
					"WARNING tool odd failed: session s1, callback odd: JSON cannot hold a java.lang.Object:"
							+ " use records, lists, maps, strings, numbers and booleans",
					"WARNING handler of permission failed: session s1, callback permission: /secret/path with a stack",
					"WARNING handler of user_input failed: session s1, callback user_input: /secret/path with a stack",
					"WARNING handler of elicitation failed: session s1, callback elicitation: no forms here",
					"WARNING command deploy failed: session s1, callback command: /secret/path with a stack",
					"WARNING hook preToolUse failed: session s1, callback hook: /secret/path with a stack",
					"WARNING handler of new.thing failed: session s1, callback raw: /secret/path with a stack"),
					logged.lines());
		}
	}

	@Test
	void failedConnectionListenerIsLogged() throws Exception {
		open(new SessionOptions().onConnection(event -> crash()));
		try (Logged logged = new Logged()) {
			stream.cut(Status.Code.UNAVAILABLE);
			fake.attached();
			logged.await(
					"WARNING connection listener failed: session s1, callback none: /secret/path with a stack");
		}
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
				return "";
			} catch (InterruptedException e) {
				interrupted.complete(null);
				throw e;
			}
		})).maxConcurrentTools(1));
		try (Logged logged = new Logged()) {
			stream.ask(toolCallback("c", "wait", "{}"));
			entered.await();
			stream.tell(SubscribeResponse.newBuilder().setCallbackResolved(CallbackResolved.newBuilder()
					.setCallbackId("c").setOutcome(CallbackOutcome.CALLBACK_OUTCOME_WITHDRAWN)));
			soon(interrupted);
			stream.ask(toolCallback("d", "weather", "{\"city\": \"Rome\"}")); // after the end of the other tool
			assertEquals("d", stream.answer().getCallbackId());
			assertEquals(List.of(), logged.lines());
		}
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
