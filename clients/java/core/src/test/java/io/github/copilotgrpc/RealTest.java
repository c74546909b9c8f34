package io.github.copilotgrpc;

import static io.github.copilotgrpc.FakeServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.copilotgrpc.bridge.v1.Handlers;
import io.github.copilotgrpc.cli.v1.HookPermissionDecision;
import io.github.copilotgrpc.cli.v1.HookPreToolUseOutput;
import io.github.copilotgrpc.cli.v1.PermissionRequestedData;
import io.github.copilotgrpc.cli.v1.UserMessageData;
import io.github.copilotgrpc.errors.CallInterruptedException;
import io.github.copilotgrpc.errors.SessionExistsException;
import io.github.copilotgrpc.errors.SessionNotFoundException;
import io.github.copilotgrpc.errors.TurnFailedException;
import io.github.copilotgrpc.testing.Script;
import io.github.copilotgrpc.testing.TestServer;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Sessions of the real CLI with a scripted model. */
@Tag("server")
class RealTest {
	private record Query(String city) {}

	private record Sky(String sky) {}

	private static final Script SCRIPT = Script.empty()
			.call("weather", "get_weather", Map.of("city", "Paris"), "The tool says: {{tool_result}}")
			.call("bad arguments", "get_weather", Map.of("place", "Paris"), "The tool says: {{tool_result}}")
			.rule(Map.of("user", "slowly"),
					List.of(Map.of("text", "First. "), Map.of("wait_for", "gate"), Map.of("text", "Second.")))
			.call("ask me", "ask_user", Map.of("question", "Which city?", "choices", List.of("Paris", "Rome")),
					"You chose: {{tool_result}}")
			.call("shell", "bash", Map.of("command", "echo hi", "description", "greets"), "Shell: {{tool_result}}")
			.say("compare", "table: {{user}}");
	private static final Tool WEATHER = Tool.of(
			"get_weather", "Tells the weather in a city.", Query.class, query -> "rain in " + query.city());

	private static TestServer server;
	private static CopilotClient client;

	@BeforeAll
	static void start() {
		server = TestServer.start(SCRIPT);
		client = server.connect();
	}

	@AfterAll
	static void stop() {
		client.close();
		server.close();
	}

	private static SessionOptions weather() {
		return new SessionOptions().tools(WEATHER).onPermission(Permissions.approveAll());
	}

	@Test
	void aTurnWithAToolAndAPermission() {
		List<String> kinds = new CopyOnWriteArrayList<>();
		SessionOptions options = new SessionOptions().tools(WEATHER).onPermission(request -> {
			kinds.add(request.kind());
			return Decision.approve();
		});
		try (CopilotSession session = client.createSession(options)) {
			Outcome outcome = session.sendAndWait("What is the weather?");
			assertEquals("The tool says: rain in Paris", outcome.text());
			assertEquals(Outcome.Status.COMPLETED, outcome.status());
			assertEquals(List.of("custom-tool"), kinds);
			try (var history = session.history(EventQuery.all().types("external_tool.*"))) {
				assertEquals(List.of("external_tool.requested", "external_tool.completed"),
						history.stream().map(item -> ((Event) item).type()).toList());
			}
			assertTrue(session.position().orElseThrow().compareTo(outcome.endPosition().orElseThrow()) >= 0);
			session.delete();
			assertThrows(SessionNotFoundException.class, () -> client.getSession(session.id()));
		}
	}

	@Test
	void wrongArgumentsAreAnsweredInWords() {
		try (CopilotSession session = client.createSession(weather())) {
			assertTrue(session.sendAndWait("bad arguments").text().contains("place: is unknown; city: is missing"));
		}
	}

	static Stream<Arguments> results() {
		return Stream.of(
				Arguments.of(ToolResult.failure("no such city"), "no such city"),
				Arguments.of(new ToolException("closed"), "closed"),
				Arguments.of(new IllegalStateException("/secret/path"), ""),
				Arguments.of(new Sky("grey"), "{\"sky\":\"grey\"}"),
				Arguments.of(null, "Done."));
	}

	@ParameterizedTest
	@MethodSource("results")
	void whatTheModelReadsOfAResult(Object result, String want) {
		Tool tool = Tool.of("get_weather", "Tells the weather.", Query.class, query -> {
			if (result instanceof Exception error) {
				throw error;
			}
			return result;
		});
		SessionOptions options = new SessionOptions().tools(tool).onPermission(Permissions.approveAll());
		try (CopilotSession session = client.createSession(options)) {
			String answer = session.sendAndWait("weather").text();
			assertTrue(answer.contains(want), answer);
			assertFalse(answer.contains("/secret") || answer.contains("Exception"), answer);
		}
	}

	@Test
	void deltasArriveBeforeTheEnd() {
		try (CopilotSession session = client.createSession();
				Turn turn = session.run("slowly")) {
			StringBuilder seen = new StringBuilder();
			for (String piece : turn.deltas()) {
				seen.append(piece);
				if (seen.toString().equals("First. ")) {
					server.release("gate");
				}
			}
			assertEquals("First. Second.", seen.toString());
			assertEquals("First. Second.", turn.outcome().text());
		}
	}

	@ParameterizedTest
	@ValueSource(booleans = {false, true})
	void interruptedWaitLeavesTheTurnOrAbortsIt(boolean abort) throws Exception {
		try (CopilotSession session = client.createSession()) {
			Prompt prompt = abort ? Prompt.of("slowly").abortOnCancel() : Prompt.of("slowly");
			CompletableFuture<Throwable> thrown = new CompletableFuture<>();
			Thread waiting = new Thread(() -> {
				try {
					session.sendAndWait(prompt);
				} catch (CallInterruptedException e) {
					thrown.complete(Thread.currentThread().isInterrupted() ? e : null);
				}
			});
			waiting.start();
			awaitEvent(session, "assistant.turn_start");
			waiting.interrupt();
			assertTrue(soon(thrown) instanceof CallInterruptedException);
			if (abort) {
				awaitEvent(session, "abort");
			} else {
				assertTrue(session.get().proto().getTurnRunning());
				assertTrue(session.abort());
			}
		}
	}

	private static void awaitEvent(CopilotSession session, String type) {
		try (var events = session.events(EventQuery.all().types(type))) {
			assertTrue(events.iterator().hasNext());
		}
	}

	@Test
	void cancelledFutureAborts() {
		try (CopilotSession session = client.createSession()) {
			CompletableFuture<Outcome> waiting = session.sendAndWaitAsync(Prompt.of("slowly").abortOnCancel());
			awaitEvent(session, "assistant.turn_start");
			waiting.cancel(true);
			awaitEvent(session, "abort");
		}
	}

	@Test
	void permissionRules() {
		SessionOptions options = new SessionOptions()
				.onPermission(Permissions.approve("read"), Permissions.reject("shell", "No shell here."));
		try (CopilotSession session = client.createSession(options)) {
			assertTrue(session.sendAndWait("shell").text().contains("No shell here."));
		}
	}

	@Test
	void approvalForTheSessionAsksOnce() {
		AtomicInteger asked = new AtomicInteger();
		SessionOptions options = new SessionOptions().tools(WEATHER).onPermission(request -> {
			asked.incrementAndGet();
			return Decision.approveForSession();
		});
		try (CopilotSession session = client.createSession(options)) {
			session.sendAndWait("weather");
			session.sendAndWait("weather");
			assertEquals(1, asked.get());
		}
	}

	@Test
	void userInput() {
		SessionOptions options = new SessionOptions().onUserInput(question -> question.getChoices(1));
		try (CopilotSession session = client.createSession(options)) {
			assertTrue(session.sendAndWait("ask me").text().contains("Rome"));
		}
	}

	@Test
	void hooks() {
		SessionOptions options = new SessionOptions().onPermission(Permissions.approveAll())
				.hook(HookType.PRE_TOOL_USE, hook -> HookPreToolUseOutput.newBuilder()
						.setPermissionDecision(HookPermissionDecision.HOOK_PERMISSION_DECISION_DENY)
						.setPermissionDecisionReason("no " + hook.getToolName()).build());
		try (CopilotSession session = client.createSession(options)) {
			assertTrue(session.sendAndWait("shell").text().contains("no bash"));
		}
	}

	@Test
	void attachments(@TempDir Path folder) throws IOException {
		Path file = Files.writeString(folder.resolve("notes.txt"), "remember the milk");
		try (CopilotSession session = client.createSession()) {
			Receipt receipt = session.send(Prompt.of("compare these").attach(
					Attachment.file(file.toString()),
					Attachment.data(new byte[2 << 20], "application/octet-stream", "big"),
					Attachment.stream(new ByteArrayInputStream("a,b\n".getBytes(StandardCharsets.UTF_8)),
							"text/csv", "table.csv")));
			assertFalse(receipt.messageId().isEmpty());
			try (var events = session.events(EventQuery.all().types("user.message"))) {
				Event event = (Event) events.iterator().next();
				assertEquals(List.of("FILE", "BLOB", "BLOB"), event.data(UserMessageData.class).orElseThrow()
						.getAttachmentsList().stream().map(item -> item.getVariantCase().name()).toList());
			}
		}
	}

	@Test
	void twoParticipantsAndAResumedSession() {
		try (CopilotSession first = client.createSession(new SessionOptions().sessionId("shared-1"))) {
			assertThrows(SessionExistsException.class,
					() -> client.createSession(new SessionOptions().sessionId("shared-1")));
			ParticipantOptions options =
					new ParticipantOptions().tools(WEATHER).onPermission(Permissions.approveAll());
			try (CopilotSession second = client.joinSession(first.id(), options)) {
				assertEquals(first.id(), second.id());
				assertEquals("The tool says: rain in Paris", first.sendAndWait("weather").text());
			}
			assertEquals(List.of(first.participantId()), first.get().proto().getParticipantsList().stream()
					.map(participant -> participant.getParticipantId()).toList());
			first.disconnect();
		}
		try (CopilotSession again = client.resumeSession("shared-1", weather());
				var history = again.history(EventQuery.all().types("session.*"))) {
			assertTrue(history.stream().anyMatch(item -> item instanceof Event event && event.type().equals("session.start")));
		}
		try (var sessions = client.listSessions()) {
			assertTrue(sessions.stream().anyMatch(session -> session.id().equals("shared-1")));
		}
		client.deleteSession("shared-1");
	}

	@Test
	void answersById() throws Exception {
		SessionOptions options = new SessionOptions().tools(WEATHER)
				.sessionHandlers(Handlers.newBuilder().setPermission(true).build());
		try (CopilotSession session = client.createSession(options)) {
			CompletableFuture<Outcome> waiting = session.sendAndWaitAsync(Prompt.of("weather"));
			try (var events = session.events(EventQuery.all().types("permission.requested"))) {
				Event event = (Event) events.iterator().next();
				String id = event.data(PermissionRequestedData.class).orElseThrow().getRequestId();
				session.resolve(id, Answers.permission(Decision.approve()));
			}
			assertEquals("The tool says: rain in Paris", soon(waiting).text());
		}
	}

	@Test
	void toolsMayCallTheClient() {
		List<String> seen = new CopyOnWriteArrayList<>();
		Tool tool = Tool.of("get_weather", "Tells the weather.", Query.class, (query, call) -> {
			seen.add(client.getSession(call.sessionId()).id());
			return "sun in " + query.city();
		});
		SessionOptions options = new SessionOptions().tools(tool).onPermission(Permissions.approveAll());
		try (CopilotSession session = client.createSession(options)) {
			assertEquals("The tool says: sun in Paris", session.sendAndWait("weather").text());
			assertEquals(List.of(session.id()), seen);
		}
	}

	@Test
	void sessionFilesAreInThisProgram(@TempDir Path folder) throws IOException {
		SessionOptions options = new SessionOptions().sessionFiles(new SessionFiles(FileStore.directory(folder)));
		try (CopilotSession session = client.createSession(options)) {
			assertEquals("You said: Hello", session.sendAndWait("Hello").text());
			try (Stream<Path> files = Files.walk(folder)) {
				assertTrue(files.anyMatch(Files::isRegularFile));
			}
			session.disconnect();
		}
	}

	@Test
	void failedTurnIsAnOutcome() {
		try (TestServer other = TestServer.start("rules: []", Map.of());
				CopilotClient its = other.connect(); CopilotSession session = its.createSession()) {
			Outcome outcome = session.sendAndWait("anything");
			assertEquals(Outcome.Status.FAILED, outcome.status());
			assertTrue(outcome.error().isPresent());
			assertThrows(TurnFailedException.class, outcome::orThrow);
		}
	}

	@Test
	void restartedServerLosesNothing() throws Exception {
		AtomicInteger runs = new AtomicInteger();
		Tool count = Tool.of("get_weather", "Counts.", Query.class, query -> "run " + runs.incrementAndGet());
		Reconnect policy = new Reconnect(Duration.ofMillis(50), Duration.ofMillis(500), Duration.ofMinutes(5));
		SessionOptions options = new SessionOptions().tools(count).onPermission(Permissions.approveAll());
		try (TestServer other = TestServer.start(SCRIPT, "--drain-grace", "1s");
				CopilotClient its = other.builder().reconnect(policy).connect();
				CopilotSession session = its.createSession(options)) {
			assertEquals("The tool says: run 1", session.sendAndWait("weather").text());
			CompletableFuture<List<Position>> watching = CompletableFuture.supplyAsync(() -> {
				List<Position> positions = new ArrayList<>();
				try (var events = session.events(EventQuery.all().fromBeginning().types("assistant.message"))) {
					for (StreamItem item : events) {
						positions.add(item.position());
						if (positions.size() == 4) { // two of each turn
							break;
						}
					}
				}
				return positions;
			});
			other.restart();
			assertEquals("The tool says: run 2", session.sendAndWait("weather").text());
			List<Position> positions = soon(watching);
			assertEquals(positions.stream().sorted().distinct().toList(), positions);
			assertEquals(4, positions.size());
			assertEquals(2, runs.get());
		}
	}

	@Test
	void privateServerEndsWithItsClient(@TempDir Path folder) throws Exception {
		Optional<ProcessHandle> child;
		String binary = System.getenv().getOrDefault("COPILOT_GRPC_BINARY", "copilot-grpc");
		ClientBuilder builder = CopilotClient.builder().launch(true).serverBinary(binary)
				.serverArguments("--offline-model", "default", "--no-login", "--home", folder.resolve("home").toString())
				// the parent of the default data directory
				.serverEnvironment(Map.of("XDG_STATE_HOME", folder.resolve("state").toString()));
		try (CopilotClient its = builder.connect()) {
			assertTrue(its.serverInfo().getCapabilities().getOfflineModel());
			builder.connect().close(); // a second server at the same time
			child = ProcessHandle.current().children()
					.filter(process -> process.info().commandLine().orElse("").contains(folder.toString())).findAny();
			assertTrue(child.isPresent());
		}
		soon(child.get().onExit());
	}
}
