package io.github.copilotgrpc.internal;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * {@code copilot-grpc serve} on a socket of its own, as a child process. The server ends with {@link #stop()}, and
 * when this program exits.
 */
public final class ServerProcess {
	/** The usual name of the binary. */
	public static final String BINARY = "copilot-grpc";
	/** The default time limit of the start. */
	public static final Duration START_TIMEOUT = Duration.ofSeconds(60);
	private static final Duration STOP_TIMEOUT = Duration.ofSeconds(20);
	/** The line after which the server accepts calls on all of its listeners. */
	private static final String READY = "Try:";
	private static final int MAX_LINES = 1000;

	/** Prepares the server's private directory. */
	@FunctionalInterface
	public interface Configure {
		/**
		 * Writes files into the directory.
		 *
		 * @param folder the directory
		 * @return further arguments of the server
		 * @throws IOException a file cannot be written
		 */
		List<String> arguments(Path folder) throws IOException;
	}

	private final List<String> command;
	private final Map<String, String> environment;
	private final Duration timeout;
	private final Path folder;
	private final Thread hook = new Thread(this::kill, "copilot-grpc-server-exit");
	private final ReentrantLock lock = new ReentrantLock(); // guards the output
	private final Condition printed = lock.newCondition();
	private final Deque<String> output = new ArrayDeque<>();
	private volatile Process process;
	private volatile Thread reader;

	private ServerProcess(List<String> command, Map<String, String> environment, Duration timeout, Path folder) {
		this.command = command;
		this.environment = environment;
		this.timeout = timeout;
		this.folder = folder;
	}

	/**
	 * Starts a server and waits until it listens.
	 *
	 * @param binary a path, or a name that is looked up on PATH
	 * @param configure prepares the server's directory
	 * @param environment further environment variables
	 * @param timeout time limit
	 * @return the server
	 * @throws IOException the server did not start; the message has its output
	 */
	public static ServerProcess start(
			String binary, Configure configure, Map<String, String> environment, Duration timeout) throws IOException {
		String path = find(binary);
		Path folder = Files.createTempDirectory("cgrpc-"); // readable by its owner only
		ServerProcess server = null;
		try {
			List<String> command = new ArrayList<>(List.of(path, "serve", "--listen", "unix:" + folder.resolve("s.sock"),
					"--data-dir", folder.resolve("data").toString())); // the last of these options counts
			command.addAll(configure.arguments(folder));
			server = new ServerProcess(command, Map.copyOf(environment), timeout, folder);
			Runtime.getRuntime().addShutdownHook(server.hook);
			server.run();
			return server;
		} catch (IOException | RuntimeException e) {
			if (server != null) {
				server.stop();
			} else {
				deleteAll(folder);
			}
			throw e;
		}
	}

	private static String find(String binary) throws IOException {
		if (binary.contains(File.separator)) {
			return binary;
		}
		for (String folder : System.getenv().getOrDefault("PATH", "").split(File.pathSeparator)) {
			Path candidate = Path.of(folder, binary);
			if (Files.isExecutable(candidate) && !Files.isDirectory(candidate)) {
				return candidate.toString();
			}
		}
		throw new IOException(binary + " is not on PATH: install copilot-grpc, or give the path of its binary");
	}

	/**
	 * Returns the server's address.
	 *
	 * @return the address, for the client
	 */
	public String target() {
		return "unix:" + folder.resolve("s.sock");
	}

	/**
	 * Returns what the server has printed.
	 *
	 * @return the last lines
	 */
	public String output() {
		lock.lock();
		try {
			return String.join("\n", output);
		} finally {
			lock.unlock();
		}
	}

	/**
	 * Waits until the server has printed a text, in a line of its present run or an earlier one.
	 *
	 * @param pattern the text
	 * @param timeout time limit
	 * @return the last match
	 * @throws IOException the text was not printed in time
	 */
	public Matcher awaitOutput(Pattern pattern, Duration timeout) throws IOException {
		long remaining = timeout.toNanos();
		lock.lock();
		try {
			while (true) {
				Matcher found = null;
				for (String line : output) {
					Matcher matcher = pattern.matcher(line);
					found = matcher.find() ? matcher : found;
				}
				if (found != null) {
					return found;
				}
				if (remaining <= 0) {
					throw new IOException("the server has not printed " + pattern);
				}
				remaining = printed.awaitNanos(remaining);
			}
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
			throw new IOException("interrupted", e);
		} finally {
			lock.unlock();
		}
	}

	/**
	 * Returns the process.
	 *
	 * @return the process
	 */
	public ProcessHandle process() {
		return process.toHandle();
	}

	/**
	 * Ends the server and starts it again in its directory.
	 *
	 * @throws IOException the server did not start
	 */
	public void restart() throws IOException {
		end();
		run();
	}

	/** Ends the server and deletes its directory. Stopping again does nothing. */
	public void stop() {
		end();
		try {
			Runtime.getRuntime().removeShutdownHook(hook);
		} catch (IllegalStateException e) {
			// The program exits.
		}
		deleteAll(folder);
	}

	private void run() throws IOException {
		ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true)
				.redirectInput(ProcessBuilder.Redirect.from(new File("/dev/null")));
		builder.environment().putAll(environment);
		Process started = builder.start();
		CompletableFuture<Boolean> ready = new CompletableFuture<>();
		process = started;
		reader = new Thread(() -> read(started, ready), "copilot-grpc-server-output");
		reader.setDaemon(true);
		reader.start();
		try {
			if (!ready.get(timeout.toMillis(), TimeUnit.MILLISECONDS)) {
				throw new IOException(command.get(0) + " did not start: " + output());
			}
		} catch (TimeoutException | ExecutionException e) {
			throw new IOException(command.get(0) + " did not start in time: " + output(), e);
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
			throw new IOException("interrupted while the server started", e);
		}
	}

	private void read(Process started, CompletableFuture<Boolean> ready) {
		try (BufferedReader lines = new BufferedReader(
				new InputStreamReader(started.getInputStream(), StandardCharsets.UTF_8))) {
			for (String line = lines.readLine(); line != null; line = lines.readLine()) {
				add(line);
				if (line.startsWith(READY)) {
					ready.complete(true);
				}
			}
		} catch (IOException e) {
			add(e.toString());
		}
		ready.complete(false);
	}

	private void add(String line) {
		lock.lock();
		try {
			output.add(line);
			if (output.size() > MAX_LINES) {
				output.remove();
			}
			printed.signalAll();
		} finally {
			lock.unlock();
		}
	}

	private void kill() {
		Process running = process;
		if (running != null) {
			running.destroy();
		}
	}

	private void end() {
		Process running = process;
		if (running == null) {
			return;
		}
		running.destroy();
		boolean interrupted = false;
		try {
			if (!running.waitFor(STOP_TIMEOUT.toMillis(), TimeUnit.MILLISECONDS)) {
				running.destroyForcibly();
			}
			reader.join(STOP_TIMEOUT.toMillis());
		} catch (InterruptedException e) {
			running.destroyForcibly();
			interrupted = true;
		}
		process = null;
		if (interrupted) {
			Thread.currentThread().interrupt();
		}
	}

	private static void deleteAll(Path folder) {
		try {
			if (Files.exists(folder)) {
				Files.walkFileTree(folder, new SimpleFileVisitor<>() {
					@Override
					public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
						Files.deleteIfExists(file);
						return FileVisitResult.CONTINUE;
					}

					@Override
					public FileVisitResult postVisitDirectory(Path directory, IOException error) throws IOException {
						Files.deleteIfExists(directory);
						return FileVisitResult.CONTINUE;
					}
				});
			}
		} catch (IOException | UncheckedIOException e) {
			System.getLogger("io.github.copilotgrpc")
					.log(System.Logger.Level.DEBUG, "the server's directory remains", e);
		}
	}
}
