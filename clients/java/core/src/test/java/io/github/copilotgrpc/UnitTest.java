package io.github.copilotgrpc;

import static io.github.copilotgrpc.FakeServer.refusal;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.bridge.v1.ErrorReason;
import io.github.copilotgrpc.bridge.v1.Failure;
import io.github.copilotgrpc.bridge.v1.Session;
import io.github.copilotgrpc.bridge.v1.TurnError;
import io.github.copilotgrpc.bridge.v1.TurnOutcome;
import io.github.copilotgrpc.bridge.v1.TurnStatus;
import io.github.copilotgrpc.bridge.v1.WatchSessionsResponse;
import io.github.copilotgrpc.cli.v1.PermissionRequestCustomTool;
import io.github.copilotgrpc.cli.v1.PermissionRequestedData;
import io.github.copilotgrpc.errors.ConnectionLostException;
import io.github.copilotgrpc.errors.CopilotException;
import io.github.copilotgrpc.errors.DeadlineExceededException;
import io.github.copilotgrpc.errors.LimitExceededException;
import io.github.copilotgrpc.errors.ServerIncompatibleException;
import io.github.copilotgrpc.errors.ServerNotFoundException;
import io.github.copilotgrpc.errors.TurnFailedException;
import io.github.copilotgrpc.errors.UnauthenticatedException;
import io.grpc.Metadata;
import io.grpc.Status;
import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.propagation.ContextPropagators;
import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Parts without a server. */
class UnitTest {
	private enum Color { RED, GREEN }

	@Description("A point.")
	private record Point(int x, @Description("up") Optional<Double> y) {
		private Point {
			if (x < 0) {
				throw new IllegalArgumentException("x must not be negative");
			}
		}
	}

	private record All(
			String text, boolean flag, long number, Color color, List<Point> points, Map<String, Integer> counts,
			Set<String> tags, int[] sizes, OptionalInt maybe, Object any) {}

	private record Recursive(List<Recursive> children) {}

	private record Unsupported(Thread thread) {}

	private record Nested(Optional<Point> point) {}

	@Test
	void schemaOfARecord() {
		String point = "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"},"
				+ "\"y\":{\"type\":\"number\",\"description\":\"up\"}},\"additionalProperties\":false,"
				+ "\"required\":[\"x\"],\"description\":\"A point.\"}";
		assertEquals("{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"},\"flag\":{\"type\":\"boolean\"},"
				+ "\"number\":{\"type\":\"integer\"},\"color\":{\"type\":\"string\",\"enum\":[\"RED\",\"GREEN\"]},"
				+ "\"points\":{\"type\":\"array\",\"items\":" + point + "},"
				+ "\"counts\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}},"
				+ "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":true},"
				+ "\"sizes\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}},\"maybe\":{\"type\":\"integer\"},"
				+ "\"any\":{}},\"additionalProperties\":false,\"required\":[\"text\",\"flag\",\"number\",\"color\","
				+ "\"points\",\"counts\",\"tags\",\"sizes\",\"any\"]}", Schema.of(All.class).schema().toString());
	}

	@Test
	void decodesWhatFits() throws Exception {
		All all = (All) Schema.of(All.class).decoder().decode(Json.parse("{\"text\": \"t\", \"flag\": true, \"number\": 1e3,"
				+ "\"color\": \"GREEN\", \"points\": [{\"x\": 1, \"y\": null}], \"counts\": {\"a\": 2},"
				+ "\"tags\": [\"x\", \"x\"], \"sizes\": [3], \"any\": {\"k\": [1, 2.5, null]}}"), "");
		assertEquals("t", all.text());
		assertEquals(1000, all.number());
		assertEquals(Color.GREEN, all.color());
		assertEquals(List.of(new Point(1, Optional.empty())), all.points());
		assertEquals(Map.of("a", 2), all.counts());
		assertEquals(Set.of("x"), all.tags());
		assertEquals(3, all.sizes()[0]);
		assertEquals(OptionalInt.empty(), all.maybe());
		assertEquals("{k=[1, 2.5, null]}", all.any().toString());
	}

	@ParameterizedTest
	@CsvSource(delimiter = '|', value = {
		"[]                                     | the arguments: expected an object, got an array",
		"{}                                     | x: is missing",
		"{\"x\": \"1\"}                         | x: expected an integer, got a string",
		"{\"x\": 1.5}                           | x: expected an integer, got 1.5",
		"{\"x\": 3000000000}                    | x: is out of range: 3000000000",
		"{\"x\": 1e999999999}                   | x: is out of range: 1e999999999",
		"{\"x\": null}                          | x: expected an integer, got null",
		"{\"x\": -1}                            | the arguments: x must not be negative",
		"{\"x\": 1, \"z\": 2, \"y\": false}     | z: is unknown; y: expected a number, got a boolean",
	})
	void mismatches(String json, String want) {
		Mismatch mismatch = assertThrows(Mismatch.class, () -> Schema.of(Point.class).decoder().decode(Json.parse(json), ""));
		assertEquals(want, mismatch.getMessage());
	}

	@Test
	void mismatchesNameThePlace() {
		var decoder = Schema.of(All.class).decoder();
		Mismatch mismatch = assertThrows(Mismatch.class, () -> decoder.decode(Json.parse("{\"text\": \"t\","
				+ "\"flag\": true, \"number\": 1, \"color\": \"BLUE\", \"points\": [{\"x\": 1}, {}], \"counts\": {\"a\": []},"
				+ "\"tags\": [], \"sizes\": [], \"any\": 1}"), ""));
		assertEquals("color: expected one of \"RED\", \"GREEN\", got \"BLUE\"; points[1].x: is missing; "
				+ "counts.a: expected an integer, got an array", mismatch.getMessage());
		Mismatch nested = assertThrows(Mismatch.class,
				() -> Schema.of(Nested.class).decoder().decode(Json.parse("{\"point\": {}}"), ""));
		assertEquals("point.x: is missing", nested.getMessage());
	}

	@Test
	void unsuitableRecordsAreRefused() {
		assertEquals("tool t: children: record Recursive contains itself", assertThrows(IllegalArgumentException.class,
				() -> Tool.declared("t", "", Recursive.class)).getMessage());
		assertTrue(assertThrows(IllegalArgumentException.class, () -> Tool.declared("t", "", Unsupported.class))
				.getMessage().startsWith("tool t: thread: no JSON Schema for java.lang.Thread"));
		assertThrows(IllegalArgumentException.class, () -> Tool.declared("a b", "", Point.class));
		assertThrows(IllegalArgumentException.class, () -> Tool.ofSchema("t", "", "[]", (query, call) -> ""));
		Tool tool = Tool.declared("t", "", Point.class);
		assertThrows(IllegalArgumentException.class, () -> new SessionOptions().tools(tool, tool).handlerSet());
	}

	@ParameterizedTest
	@ValueSource(strings = {"{'a': 1}", "{\"a\": 1} x", "{\"a\": NaN}", "", "{\"a\": 01}"})
	void jsonIsReadStrictly(String text) {
		assertThrows(RuntimeException.class, () -> Json.parse(text));
	}

	@Test
	void jsonOfResults() {
		record Result(Optional<String> note, Instant at, Color color, double[] values) {}

		assertEquals("{\"note\":null,\"at\":\"1970-01-01T00:00:00Z\",\"color\":\"RED\",\"values\":[1.0,2.5]}",
				Json.write(new Result(Optional.empty(), Instant.EPOCH, Color.RED, new double[] {1, 2.5})));
		assertThrows(IllegalArgumentException.class, () -> Json.write(List.of(Double.NaN)));
		assertThrows(IllegalArgumentException.class, () -> Json.write(new Object()));
		List<Object> loop = new ArrayList<>();
		loop.add(loop);
		assertThrows(IllegalArgumentException.class, () -> Json.write(loop));
	}

	@Test
	void permissionRulesAreAskedInTheirOrder() throws Exception {
		PermissionHandler rules = Permissions.firstOf(
				Permissions.approve("read"), Permissions.approveForSession("write", "memory"),
				Permissions.reject("url", "No network."));
		assertTrue(rules.decide(request("read")).toAnswer().getPermission().hasApproveOnce());
		assertTrue(rules.decide(request("memory")).toAnswer().getPermission().hasApproveForSession());
		assertEquals("No network.", rules.decide(request("url")).toAnswer().getPermission().getReject().getFeedback());
		assertTrue(rules.decide(request("shell")).toAnswer().hasAbstain());
		assertFalse(Decision.reject("").toAnswer().getPermission().getReject().hasFeedback());
		assertTrue(Permissions.denyAll().decide(request("read")).toAnswer().getPermission().hasReject());
	}

	private static PermissionRequest request(String kind) {
		return new PermissionRequest("s", "c", kind, Optional.empty(), PermissionRequestedData.getDefaultInstance());
	}

	@Test
	void permissionOfAnUnknownKind() {
		Callback callback = Callback.newBuilder().setPermission(PermissionRequestedData.newBuilder().setPermissionRequest(
				io.github.copilotgrpc.cli.v1.PermissionRequest.newBuilder().setUnrecognized("{\"kind\": \"new-kind\"}"))).build();
		assertEquals("new-kind", PermissionRequest.of(callback).kind());
		assertEquals("custom-tool", PermissionRequest.of(Callback.newBuilder().setPermission(
				PermissionRequestedData.newBuilder().setPermissionRequest(io.github.copilotgrpc.cli.v1.PermissionRequest
						.newBuilder().setCustomTool(PermissionRequestCustomTool.newBuilder())))
				.build()).kind());
	}

	@Test
	void errorsByReason() {
		var error = refusal(Status.Code.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED", "too much", "prompt");
		CopilotException limit = Errors.of(error.getStatus(), error.getTrailers());
		assertInstanceOf(LimitExceededException.class, limit);
		assertEquals(Duration.ofMillis(1), limit.retryAfter());
		assertEquals("LimitExceededException: RESOURCE_EXHAUSTED LIMIT_EXCEEDED (field prompt): too much", limit.toString());
		assertFalse(limit.isBroken());
		var newer = refusal(Status.Code.INTERNAL, "SOMETHING_NEW", "new", "");
		CopilotException unknown = Errors.of(newer.getStatus(), newer.getTrailers());
		assertEquals(CopilotException.class, unknown.getClass());
		assertEquals("SOMETHING_NEW", unknown.reason());
		assertFalse(unknown.isBroken());
		assertInstanceOf(ConnectionLostException.class, Errors.of(Status.UNAVAILABLE, new Metadata()));
		assertInstanceOf(DeadlineExceededException.class, Errors.of(Status.DEADLINE_EXCEEDED, null));
		Metadata foreign = new Metadata();
		foreign.put(Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER), new byte[] {1, 2, 3});
		assertTrue(Errors.of(Status.INTERNAL, foreign).isBroken());
	}

	@ParameterizedTest
	@ValueSource(strings = {"http://localhost:8080", "https://agents.example", "HTTPS://agents.example:443"})
	void targetsAreNotUrls(String target) {
		IllegalArgumentException error =
				assertThrows(IllegalArgumentException.class, () -> CopilotClient.connect(target));
		assertEquals("target \"" + target + "\" is a URL: a target is host:port, unix:/path or dns:///host:port, and TLS"
				+ " is an option of the client", error.getMessage());
	}

	@Test
	void errorsOfConnectionsNameTheRemedyInOneLine() throws Exception {
		for (var dial : Map.of("unix:/no/such/socket", "there is no such socket",
				"127.0.0.1:1", "finishConnect(..) failed with error(-111): Connection refused").entrySet()) {
			CopilotException error = assertThrows(ServerNotFoundException.class, () -> CopilotClient.builder()
					.target(dial.getKey()).plaintext().connectTimeout(Duration.ofSeconds(20)).connect());
			assertEquals("no server at " + dial.getKey() + " (" + dial.getValue() + "): start it with `copilot-grpc serve`,"
					+ " or name another one with ClientBuilder.target or COPILOT_GRPC_TARGET", error.getMessage());
			assertPlain(error);
		}
		CopilotException missing = assertThrows(ServerNotFoundException.class,
				() -> CopilotClient.builder().launch(true).serverBinary("no-such-binary").connect());
		assertEquals("no-such-binary is not on PATH: install copilot-grpc, or give the path of its binary;"
				+ " ClientBuilder.target and COPILOT_GRPC_TARGET name a server that runs", missing.getMessage());
		assertPlain(missing);
		var refusal = refusal(Status.Code.UNAUTHENTICATED, "UNAUTHENTICATED", "missing bearer token", "");
		CopilotException refused = Errors.of(refusal.getStatus(), refusal.getTrailers());
		assertEquals("missing bearer token: give a token with ClientBuilder.token, or set COPILOT_GRPC_TOKEN",
				refused.getMessage());
		assertPlain(refused);
	}

	@Test
	void conflictsOfNamesNameTheHolder() {
		Failure.Builder failure = Failure.newBuilder().setCode(Status.Code.ALREADY_EXISTS.value())
				.setReason(ErrorReason.ERROR_REASON_TOOL_NAME_CONFLICT).setMessage("tool \"a\" exists");
		assertEquals("tool \"a\" exists", Errors.of(failure.build()).getMessage());
		failure.putMetadata("holder", "worker");
		assertEquals("tool \"a\" exists; worker has it", Errors.of(failure.build()).getMessage());
		failure.setMessage("tool \"a\" exists; worker is disconnected").putMetadata("free_at", "2026-01-01T00:00:00Z");
		CopilotException conflict = Errors.of(failure.build());
		assertEquals("tool \"a\" exists; worker is disconnected", conflict.getMessage());
		assertEquals("2026-01-01T00:00:00Z", conflict.metadata().get("free_at"));
	}

	@Test
	void exceptionOfATokenIsTheCause() throws Exception {
		IllegalStateException cause = new IllegalStateException("no disk");
		try (FakeServer fake = new FakeServer()) {
			CopilotException error = assertThrows(UnauthenticatedException.class, () -> fake.builder().token(() -> {
				throw cause;
			}).connect());
			assertEquals("no token: java.lang.IllegalStateException: no disk", error.getMessage());
			assertEquals(cause, error.getCause());
		}
	}

	/** What an uncaught exception prints besides its stack is one line. */
	private static void assertPlain(Throwable error) {
		assertEquals(1, error.toString().lines().count(), error::toString);
		assertNull(error.getCause());
		assertEquals(0, error.getSuppressed().length);
	}

	@Test
	void wordsOfTheApi() {
		assertEquals(List.of("completed", "aborted", "failed", "stalled", "runtime_lost", "timed_out", "unknown"),
				words(Outcome.Status.values()));
		assertEquals(List.of(
				"loaded", "unloaded", "disconnected", "credentials_needed", "stored", "damaged", "unknown"),
				words(SessionState.values()));
		assertEquals(List.of("keep", "end_with_last_participant"), words(Lifetime.values()));
		assertEquals(List.of("report", "continue"), words(OnInterruption.values()));
		assertEquals(List.of("ephemeral_lost", "trimmed", "epoch_ended", "unknown"), words(GapReason.values()));
	}

	private static List<String> words(Object[] values) {
		return Stream.of(values).map(Object::toString).toList();
	}

	@ParameterizedTest
	@EnumSource
	void kindsOfCallbacksHaveTheNamesOfTheirRequests(io.github.copilotgrpc.bridge.v1.CallbackKind kind) {
		boolean known = kind.ordinal() > 0 && kind != io.github.copilotgrpc.bridge.v1.CallbackKind.UNRECOGNIZED;
		CallbackKind own = CallbackKind.of(kind);
		assertEquals(known, own != CallbackKind.UNKNOWN);
		if (known) {
			assertEquals(kind, own.proto());
			assertNotNull(Callback.getDescriptor().findFieldByName(own.toString()));
		}
	}

	@ParameterizedTest
	@EnumSource
	void changesOfSessionsHaveTheNamesOfTheApi(io.github.copilotgrpc.bridge.v1.SessionChange change) {
		if (change != io.github.copilotgrpc.bridge.v1.SessionChange.UNRECOGNIZED) {
			SessionChange got = new SessionChange(WatchSessionsResponse.newBuilder().setChange(change).build());
			boolean isOther = change.ordinal() == 0
					|| change == io.github.copilotgrpc.bridge.v1.SessionChange.SESSION_CHANGE_HEARTBEAT;
			assertEquals(isOther ? "unknown" : change.name().substring("SESSION_CHANGE_".length()).toLowerCase(Locale.ROOT),
					got.kind().toString());
		}
	}

	@Test
	void sessionsAndOutcomesArePrintedInWords() {
		Session.Builder session = Session.newBuilder().setSessionId("s1").setModelId("m1").setSummary("Talks of Paris")
				.setState(io.github.copilotgrpc.bridge.v1.SessionState.SESSION_STATE_STORED);
		SessionInfo unnamed = new SessionInfo(session.build());
		assertEquals("s1 stored Talks of Paris", unnamed.toString());
		assertEquals("m1", unnamed.model());
		assertEquals("Paris", new SessionInfo(session.setName("Paris").build()).title());
		assertEquals("s2 unknown", new SessionInfo(Session.newBuilder().setSessionId("s2").build()).toString());

		Outcome completed = Outcome.of("m", TurnOutcome.newBuilder()
				.setStatus(TurnStatus.TURN_STATUS_COMPLETED).setText("rain").build());
		assertEquals("completed: rain", completed.toString());
		Outcome lost = Outcome.of("m", TurnOutcome.newBuilder().setStatus(TurnStatus.TURN_STATUS_RUNTIME_LOST)
				.setText("ra").setError(TurnError.newBuilder().setMessage("killed: send the prompt again")).build());
		assertEquals("runtime_lost: killed: send the prompt again", lost.toString());
		assertEquals("TurnFailedException: ABORTED: turn runtime_lost: killed: send the prompt again",
				assertThrows(TurnFailedException.class, lost::orThrow).toString());
	}

	@Test
	void backoffDoublesUpToItsLimitAndGivesUp() {
		AtomicLong now = new AtomicLong();
		Backoff backoff = new Backoff(
				new Reconnect(Duration.ofMillis(100), Duration.ofMillis(300), Duration.ofSeconds(10)), now::get, () -> 1);
		CopilotException error = new ConnectionLostException("cut");
		for (int want : new int[] {100, 200, 300, 300}) {
			assertEquals(Duration.ofMillis(want), backoff.next(error).orElseThrow());
		}
		now.addAndGet(Duration.ofSeconds(10).toNanos());
		assertEquals(Optional.empty(), backoff.next(error));
		backoff.reset();
		assertEquals(Duration.ofMillis(100), backoff.next(error).orElseThrow());
		assertEquals(Optional.empty(), new Backoff(Reconnect.NEVER).next(error));
		var busy = refusal(Status.Code.UNAVAILABLE, "DRAINING", "later", "");
		assertEquals(Duration.ofMillis(201), backoff.next(Errors.of(busy.getStatus(), busy.getTrailers())).orElseThrow());
		assertThrows(IllegalArgumentException.class,
				() -> new Reconnect(Duration.ofMillis(-1), Duration.ZERO, Duration.ZERO));
	}

	@ParameterizedTest
	@CsvSource({
		"unix:/a/b, true", "/a/b, true", "localhost:1, true", "127.0.0.1:7443, true", "dns:///localhost:7, true",
		"[::1]:7, true", "::1, true", "example.com:443, false", "dns:///example.com:443, false", "10.0.0.7:1, false",
		"localhost.example.com:443, false", "127.0.0.1.example.com:443, false"})
	void localTargets(String target, boolean local) {
		assertEquals(local, Target.parse(target).isLocal());
	}

	@Test
	void defaultSockets() {
		assertEquals("unix:/run/user/1/copilot-grpc.sock",
				Target.defaultSocket(Map.of("XDG_RUNTIME_DIR", "/run/user/1"), "Linux", "/home/a").text());
		assertEquals("unix:/home/a/.cache/copilot-grpc/copilot-grpc.sock",
				Target.defaultSocket(Map.of("XDG_RUNTIME_DIR", "relative"), "Linux", "/home/a").text());
		assertEquals("unix:/Users/a/Library/Caches/copilot-grpc/copilot-grpc.sock",
				Target.defaultSocket(Map.of(), "Mac OS X", "/Users/a").text());
		assertEquals("/a/b", Target.parse("unix:///a/b").path());
		assertFalse(Target.parse("/no/such/socket").isListening());
	}

	@Test
	void contradictingSettingsAreRefused() {
		assertThrows(IllegalArgumentException.class, () -> CopilotClient.builder().target("x:1").launch(true).connect());
		assertThrows(IllegalArgumentException.class,
				() -> CopilotClient.builder().target("example.com:1").token(Token.of("t")).plaintext().connect());
		assertThrows(IllegalArgumentException.class, () -> new SessionOptions().maxConcurrentTools(0));
	}

	@Test
	void serverVersions() {
		Target target = Target.parse("x:1");
		for (String version : List.of("0.1.0", "v0.9.3-rc.1", "0.1", "dev", "", "(devel)")) {
			assertDoesNotThrow(() -> ServerVersion.check(version, target));
		}
		for (String version : List.of("1.0.0", "v2.3", "0.0.9")) {
			assertThrows(ServerIncompatibleException.class, () -> ServerVersion.check(version, target));
		}
	}

	@Test
	void positionsAreUnsignedAndOrdered() {
		Position large = Position.parse("18446744073709551615/1");
		assertEquals("18446744073709551615/1", large.toString());
		assertTrue(large.compareTo(new Position(1, 9)) > 0);
		assertTrue(new Position(1, 2).compareTo(new Position(1, 10)) < 0);
		for (String wrong : List.of("", "1", "1/", "-1/2", "a/b", "1/2/3")) {
			assertThrows(IllegalArgumentException.class, () -> Position.parse(wrong));
		}
	}

	@Test
	void tokenFileIsReadAgainAfterAChange(@TempDir Path folder) throws Exception {
		Path file = Files.writeString(folder.resolve("token"), " one\n");
		Token token = Token.file(file);
		assertEquals("one", token.get());
		Files.writeString(file, "another\n");
		assertEquals("another", token.get());
		Files.delete(file);
		assertThrows(NoSuchFileException.class, token::get);
	}

	@Test
	void bearerTokenIsSent() throws Exception {
		try (FakeServer fake = new FakeServer(); CopilotClient client = fake.builder().token(Token.of("secret")).connect()) {
			assertEquals("0.1.0", client.serverInfo().getVersion());
			assertEquals("Bearer secret", FakeServer.soon(fake.headers)
					.get(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER)));
		}
	}

	@Test
	void anotherVersion() throws Exception {
		try (FakeServer fake = new FakeServer()) {
			fake.version = "2.0.0";
			assertThrows(ServerIncompatibleException.class, fake::connect);
		}
	}

	@Test
	void filesAreConfined(@TempDir Path folder) throws IOException {
		Path root = Files.createDirectory(folder.resolve("root"));
		Files.writeString(folder.resolve("secret"), "s");
		Files.createSymbolicLink(root.resolve("link"), folder);
		Files.createSymbolicLink(root.resolve("direct"), folder.resolve("secret"));
		Files.createSymbolicLink(root.resolve("dangling"), folder.resolve("new"));
		FileStore store = FileStore.directory(root);
		for (String path : List.of("/link/secret", "/direct", "/link/new", "/dangling")) {
			assertThrows(AccessDeniedException.class, () -> store.read(path));
			assertThrows(AccessDeniedException.class, () -> store.write(path, new byte[0]));
		}
		assertThrows(NoSuchFileException.class, () -> store.read("/../secret"));
		store.append("/a/b/c", new byte[] {1});
		store.append("/a/b/c", new byte[] {2});
		assertEquals(2, store.read("/a/b/c").length);
		assertEquals(List.of("b"), store.list("/a").stream().map(FileStore.Info::name).toList());
		store.rename("/a/b/c", "/a/d");
		assertEquals(2, store.stat("/a/d").size());
		assertThrows(IOException.class, () -> store.remove("/a", false));
		store.remove("/a", true);
		assertThrows(NoSuchFileException.class, () -> store.stat("/a"));
	}

	@Test
	void handlersRunInTheTraceOfTheirCallback() throws Exception {
		AtomicReference<Map<String, String>> seen = new AtomicReference<>();
		String trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
		GlobalOpenTelemetry.resetForTest();
		GlobalOpenTelemetry.set(OpenTelemetry.propagating(
				ContextPropagators.create(
						W3CTraceContextPropagator.getInstance())));
		Traces.run(trace, "", () -> {
			seen.set(Traces.current());
			return null;
		});
		assertEquals(Map.of("traceparent", trace), seen.get());
		assertEquals(Map.of(), Traces.current());
	}
}
