package io.github.copilotgrpc;

import static io.github.copilotgrpc.FakeServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.copilotgrpc.testing.Script;
import io.github.copilotgrpc.testing.TestServer;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.io.TempDir;

/** The examples, and the code of the README, as their readers run them. */
@Tag("server")
class ExamplesTest {
	private static final Path ROOT = Path.of("..").toAbsolutePath().normalize();
	private static final Pattern BLOCK =
			Pattern.compile("<!-- (run|compile)(?:: (\\w+))? -->\n```java\n(.*?)```", Pattern.DOTALL);
	private static final Pattern IMPORTS = Pattern.compile("((?:import [\\w.*]+;\n)*)\n*(.*)", Pattern.DOTALL);
	/** A program of a fragment: the imports of the frame and its own, its class and its code. */
	private static final String FRAME = """
			import io.github.copilotgrpc.CopilotClient;
			import io.github.copilotgrpc.CopilotSession;
			import io.github.copilotgrpc.SessionOptions;
			import io.github.copilotgrpc.Tool;
			%s
			public class %s {
				public static void main(String[] arguments) throws Exception {
			%s
				}
			}
			""";
	private static final String SESSION = """
			try (CopilotClient client = CopilotClient.connect(); CopilotSession session = client.createSession()) {
				session.sendAndWait("first");
			%s
			}
			""";
	private static final String CLIENT = """
			try (CopilotClient client = CopilotClient.connect()) {
			%s
			}
			""";

	private static final String INBOX = """
			record City(String city) {}
			Tool tool = Tool.of("get_weather", "Tells the weather.", City.class, in -> "rain in " + in.city());
			SessionOptions options = new SessionOptions().tools(tool).label("team", "payments")
					.sessionHandlers(io.github.copilotgrpc.bridge.v1.Handlers.newBuilder().setPermission(true).build());
			try (CopilotClient client = CopilotClient.connect(); CopilotSession session = client.createSession(options)) {
				Thread inbox = new Thread(() -> {
			%s
				});
				inbox.setDaemon(true);
				inbox.start();
				System.out.println(session.sendAndWait("What is the weather?").text());
			}
			""";

	private static final String ARCHIVE = """
			try (CopilotClient client = CopilotClient.connect(); CopilotClient other = CopilotClient.connect();
					CopilotSession session = client.createSession()) {
				session.sendAndWait("first");
			%s
				try (CopilotSession copy = other.resumeSession("guide", new SessionOptions())) {
					System.out.println(copy.id());
				}
			}
			""";

	@TempDir
	private static Path classes;

	private static TestServer server;

	@BeforeAll
	static void start() throws IOException {
		server = TestServer.start(Script.empty().call(
				"weather", "get_weather", Map.of("city", "Paris"), "It says: {{tool_result}}"));
		Files.write(classes.resolve("photo.png"), new byte[] {(byte) 0x89, 'P', 'N', 'G'});
		compile(Path.of("Agent.java"), Path.of("Watcher.java"), Path.of("Shared.java"), Path.of("Newcomer.java"));
	}

	@AfterAll
	static void stop() {
		server.close();
	}

	private static void compile(Path... files) {
		JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
		try (var manager = compiler.getStandardFileManager(null, null, StandardCharsets.UTF_8)) {
			List<Path> sources = new ArrayList<>();
			for (Path file : files) {
				sources.add(file.isAbsolute() ? file : ROOT.resolve("examples").resolve(file));
			}
			StringWriter output = new StringWriter();
			boolean compiled = compiler.getTask(output, manager, null,
					List.of("-d", classes.toString(), "-cp", System.getProperty("java.class.path"), "-proc:none",
							"-Xlint:all,-classfile,-path", "-Werror"), null,
					manager.getJavaFileObjectsFromPaths(sources)).call();
			assertTrue(compiled, output::toString);
		} catch (IOException e) {
			throw new UncheckedIOException(e);
		}
	}

	private static Process launch(TestServer target, String main, String... arguments) throws IOException {
		List<String> command = new ArrayList<>(List.of(
				Path.of(System.getProperty("java.home"), "bin", "java").toString(),
				"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp",
				classes + File.pathSeparator + System.getProperty("java.class.path"), main));
		command.addAll(List.of(arguments));
		ProcessBuilder builder = new ProcessBuilder(command).directory(classes.toFile()).redirectErrorStream(true);
		builder.environment().put("COPILOT_GRPC_TARGET", target.target());
		return builder.start();
	}

	private static String run(String input, String main, String... arguments) throws Exception {
		return run(server, 0, input, main, arguments);
	}

	private static String run(TestServer target, int code, String input, String main, String... arguments)
			throws Exception {
		Process process = launch(target, main, arguments);
		try {
			process.getOutputStream().write(input.getBytes(StandardCharsets.UTF_8));
			process.getOutputStream().close();
			CompletableFuture<String> output = CompletableFuture.supplyAsync(() -> {
				try {
					return new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
				} catch (IOException e) {
					return e.toString();
				}
			});
			String text = output.get(4, TimeUnit.MINUTES);
			assertEquals(code, process.waitFor(), text);
			return text;
		} finally {
			process.destroyForcibly();
		}
	}

	/** A program with a fragment in its frame. The fragment has the imports that it needs. */
	private static String program(String name, String frame, String code) {
		Matcher parts = IMPORTS.matcher(code);
		assertTrue(parts.matches());
		assertFalse(parts.group(1).isEmpty(), "no imports: " + code);
		return FRAME.formatted(parts.group(1), name, frame.formatted(parts.group(2)));
	}

	@TestFactory
	List<DynamicTest> readme() throws IOException {
		List<DynamicTest> tests = new ArrayList<>();
		List<Path> sources = new ArrayList<>();
		Matcher block = BLOCK.matcher(Files.readString(ROOT.resolve("README.md")));
		while (block.find()) {
			String code = block.group(3);
			String name = "Readme" + tests.size();
			String kind = block.group(2);
			String whole;
			if (kind == null && block.group(1).equals("run")) {
				whole = code.replaceAll("public class \\w+", "public class " + name);
			} else {
				String frame = kind == null ? "%s" : Map.of("session", SESSION, "client", CLIENT, "inbox", INBOX).get(kind);
				whole = program(name, frame, code);
			}
			sources.add(Files.writeString(classes.resolve(name + ".java"), whole));
			boolean runs = block.group(1).equals("run");
			String title = code.strip().lines().findFirst().orElseThrow();
			tests.add(DynamicTest.dynamicTest(title, () -> {
				String output = runs ? run("", name) : "";
				if ("inbox".equals(kind)) {
					assertTrue(output.startsWith("permission in ") && output.contains("It says: rain in Paris\n"), output);
				} else if (code.contains("rain in ")) {
					assertEquals("It says: rain in Paris\n", output);
				}
			}));
		}
		assertTrue(tests.size() > 10);
		tests.add(DynamicTest.dynamicTest("the first program fails with its turn", () -> {
			try (TestServer failing = TestServer.start("rules: []", Map.of())) {
				String output = run(failing, 1, "", "Readme0");
				assertTrue(output.contains("TurnFailedException"), output);
			}
		}));
		compile(sources.toArray(Path[]::new));
		return tests;
	}

	/** docs/clients.md has one fragment. Its session has the id of one in the README. */
	@Test
	void archiveInTheGuide() throws Exception {
		Matcher block = BLOCK.matcher(Files.readString(ROOT.resolve("../../docs/clients.md")));
		assertTrue(block.find() && "archive".equals(block.group(2)));
		String code = block.group(3).replace("\"copy\"", "\"guide\"").replace("session.tar.gz", "guide.tar.gz");
		Path source = classes.resolve("Guide.java");
		compile(Files.writeString(source, program("Guide", ARCHIVE, code)));
		assertEquals("guide\n", run("", "Guide"));
		assertFalse(block.find());
	}

	@Test
	void agent() throws Exception {
		List<String> lines = run("y\n", "Agent", "What is the weather?").lines().toList();
		assertEquals("The agent asks for permission: custom-tool [y/n/s]", lines.get(0));
		assertEquals("It says: {\"sky\":\"rain\",\"temperature\":12}", lines.get(1));
	}

	@Test
	void shared() throws Exception {
		assertEquals(List.of("participants: boss, worker", "boss: permits custom-tool",
				"worker: tells the weather in Paris", "agent: It says: rain in Paris"),
				run("", "Shared").lines().toList());
	}

	/** Runs the watcher until it has seen the ends of some turns. */
	private static CompletableFuture<List<String>> watch(
			TestServer other, String session, Path file, int turns, List<String> lines) throws IOException {
		Process process = launch(other, "Watcher", session, file.toString());
		return CompletableFuture.supplyAsync(() -> {
			int seen = 0;
			try (BufferedReader output = process.inputReader()) {
				for (String line = output.readLine(); line != null; line = output.readLine()) {
					lines.add(line);
					seen += line.endsWith(" session.idle") ? 1 : 0;
					if (seen == turns) {
						awaitContent(file, line.split(" ")[0]); // the program writes it after the line
						break;
					}
				}
			} catch (IOException | InterruptedException e) {
				lines.add(e.toString());
			} finally {
				process.destroyForcibly();
			}
			return lines;
		});
	}

	private static void awaitContent(Path file, String text) throws IOException, InterruptedException {
		long deadline = System.nanoTime() + FakeServer.PATIENCE.toNanos();
		while (!Files.exists(file) || !Files.readString(file).equals(text)) {
			assertTrue(System.nanoTime() < deadline, "the position was not written");
			TimeUnit.MILLISECONDS.sleep(5);
		}
	}

	@Test
	void watcherSurvivesRestartsOfServerAndProgram(@TempDir Path folder) throws Exception {
		Path file = folder.resolve("position");
		List<String> lines = Collections.synchronizedList(new ArrayList<>());
		try (TestServer other = TestServer.start(Script.empty(), "--drain-grace", "1s");
				CopilotClient client = other.connect(); CopilotSession session = client.createSession()) {
			assertTrue(session.sendAndWait("one").isCompleted());
			var first = watch(other, session.id(), file, 2, lines);
			while (lines.isEmpty()) { // the program has connected
				TimeUnit.MILLISECONDS.sleep(5);
				assertFalse(first.isDone(), lines::toString);
			}
			other.restart();
			assertTrue(session.sendAndWait("two").isCompleted());
			soon(first);
			var second = watch(other, session.id(), file, 1, lines);
			assertTrue(session.sendAndWait("three").isCompleted());
			soon(second);
			assertEquals(3, lines.stream().filter(line -> line.endsWith(" user.message")).count(), lines::toString);
			List<Position> positions = lines.stream().map(line -> Position.parse(line.split(" ")[0])).toList();
			assertEquals(positions.stream().sorted().distinct().toList(), positions);
		}
	}
}
