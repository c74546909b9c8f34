package io.github.copilotgrpc.testing;

import io.github.copilotgrpc.ClientBuilder;
import io.github.copilotgrpc.CopilotClient;
import io.github.copilotgrpc.internal.ServerProcess;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * A private server whose model is a script, for tests of agents without an account or a network.
 *
 * <p>The server needs {@code copilot-grpc} on PATH, or its path in the environment variable COPILOT_GRPC_BINARY,
 * and a Copilot CLI, which it finds on PATH or installs.
 */
public final class TestServer implements AutoCloseable {
	private static final Duration START_TIMEOUT = Duration.ofMinutes(2);
	private static final Duration RELEASE_TIMEOUT = Duration.ofSeconds(30);
	private static final Pattern MODEL = Pattern.compile("A script plays the model: (\\S+)");

	private final ServerProcess process;

	private TestServer(ServerProcess process) {
		this.process = process;
	}

	/**
	 * Starts a server and waits until it listens.
	 *
	 * @param script plays the model
	 * @param arguments further arguments of {@code copilot-grpc serve}
	 * @return the server
	 * @throws UncheckedIOException the server did not start; the message has its output
	 */
	public static TestServer start(Script script, String... arguments) {
		return start(script.toJson(), Map.of(), arguments);
	}

	/**
	 * Starts a server and waits until it listens.
	 *
	 * @param script plays the model, in the form of docs/offline-model.md: YAML or JSON
	 * @param environment further environment variables, such as COPILOT_CLI_PATH
	 * @param arguments further arguments of {@code copilot-grpc serve}
	 * @return the server
	 * @throws UncheckedIOException the server did not start; the message has its output
	 */
	public static TestServer start(String script, Map<String, String> environment, String... arguments) {
		String binary = System.getenv().getOrDefault("COPILOT_GRPC_BINARY", "");
		try {
			return new TestServer(ServerProcess.start(binary.isEmpty() ? ServerProcess.BINARY : binary,
					folder -> configure(folder, script, List.of(arguments)), environment, START_TIMEOUT));
		} catch (IOException e) {
			throw new UncheckedIOException(e);
		}
	}

	private static List<String> configure(Path folder, String script, List<String> more) throws IOException {
		Path file = Files.writeString(folder.resolve("model.yaml"), script);
		// Directories that separate the server from the user's own.
		List<String> arguments = new ArrayList<>(List.of(
				"--offline-model", file.toString(), "--no-login", "--home", folder.resolve("copilot").toString(),
				"--user-home", folder.toString(), "--work-dir", folder.toString()));
		arguments.addAll(more);
		return arguments;
	}

	/**
	 * Returns the address.
	 *
	 * @return the address, for {@link CopilotClient#connect(String)}
	 */
	public String target() {
		return process.target();
	}

	/**
	 * Connects to the server.
	 *
	 * @return the client
	 */
	public CopilotClient connect() {
		return builder().connect();
	}

	/**
	 * Returns the settings of a client of this server.
	 *
	 * @return the builder
	 */
	public ClientBuilder builder() {
		return CopilotClient.builder().target(target());
	}

	/**
	 * Returns what the server has printed.
	 *
	 * @return the last lines
	 */
	public String output() {
		return process.output();
	}

	/**
	 * Ends the server and starts it again with its sessions, on the same socket.
	 *
	 * @throws UncheckedIOException the server did not start
	 */
	public void restart() {
		try {
			process.restart();
		} catch (IOException e) {
			throw new UncheckedIOException(e);
		}
	}

	/**
	 * Lets the model continue after the step {@code wait_for}.
	 *
	 * @param gate the step's name
	 * @throws UncheckedIOException the model cannot be reached
	 */
	public void release(String gate) {
		try {
			String url = process.awaitOutput(MODEL, RELEASE_TIMEOUT).group(1); // the last one, after a restart
			URI uri = URI.create(url + "/_offline/release?gate=" + URLEncoder.encode(gate, StandardCharsets.UTF_8));
			HttpRequest request = HttpRequest.newBuilder(uri).timeout(RELEASE_TIMEOUT)
					.POST(HttpRequest.BodyPublishers.noBody()).build();
			int status = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.discarding()).statusCode();
			if (status / 100 != 2) {
				throw new IOException("the model refused the release with status " + status);
			}
		} catch (IOException e) {
			throw new UncheckedIOException(e);
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
			throw new IllegalStateException("interrupted", e);
		}
	}

	/** Ends the server and deletes its directories. */
	@Override
	public void close() {
		process.stop();
	}
}
