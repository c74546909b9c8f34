package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.GetServerInfoRequest;
import io.github.copilotgrpc.bridge.v1.GetServerInfoResponse;
import io.github.copilotgrpc.bridge.v1.RuntimeServiceGrpc;
import io.github.copilotgrpc.errors.ConnectionLostException;
import io.github.copilotgrpc.errors.CopilotException;
import io.github.copilotgrpc.errors.ServerIncompatibleException;
import io.github.copilotgrpc.errors.ServerNotFoundException;
import io.github.copilotgrpc.internal.ServerProcess;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Status;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;

/** Settings of a client. Not safe for concurrent use. */
public final class ClientBuilder {
	private static final AtomicInteger THREADS = new AtomicInteger();

	private String target = "";
	private Token token;
	private Channels.Security security = new Channels.Security(null, null, null, "", false);
	private String name = "";
	private Reconnect reconnect = Reconnect.DEFAULT;
	private Duration callTimeout = Duration.ofSeconds(60);
	private Duration connectTimeout = Duration.ofSeconds(20);
	private Duration closeTimeout = Duration.ofSeconds(5);
	private Executor executor;
	private Boolean launch; // null: if there is no server
	private String binary = ServerProcess.BINARY;
	private List<String> serverArguments = List.of();
	private Map<String, String> serverEnvironment = Map.of();
	private Consumer<? super ManagedChannelBuilder<?>> customizer = channel -> { };

	ClientBuilder() {}

	/**
	 * Sets the server. Default: the environment variable COPILOT_GRPC_TARGET; else the default socket of {@code
	 * copilot-grpc serve}, if a server listens there; else a private server.
	 *
	 * @param address {@code HOST:PORT}, {@code unix:/PATH}, or another target of gRPC such as {@code dns:///HOST:PORT}
	 * @return this builder
	 */
	public ClientBuilder target(String address) {
		target = Objects.requireNonNull(address);
		return this;
	}

	/**
	 * Sets the bearer token; see {@link Token} for tokens that change. Default: the environment variable
	 * COPILOT_GRPC_TOKEN, except for unix sockets.
	 *
	 * @param source the token
	 * @return this builder
	 */
	public ClientBuilder token(Token source) {
		token = Objects.requireNonNull(source);
		return this;
	}

	/**
	 * Sets the certificates that sign the server's. Default: the system's. TLS is used for all targets except unix
	 * sockets and loopback addresses, and for loopback addresses if a certificate is given.
	 *
	 * @param pem a file
	 * @return this builder
	 */
	public ClientBuilder trust(Path pem) {
		security = new Channels.Security(Objects.requireNonNull(pem), security.certificate(), security.key(),
				security.serverName(), security.plaintext());
		return this;
	}

	/**
	 * Sets this client's certificate, for mutual TLS.
	 *
	 * @param certificate a file, in PEM
	 * @param key its key, a file in PEM (PKCS 8)
	 * @return this builder
	 */
	public ClientBuilder certificate(Path certificate, Path key) {
		security = new Channels.Security(security.ca(), Objects.requireNonNull(certificate),
				Objects.requireNonNull(key), security.serverName(), security.plaintext());
		return this;
	}

	/**
	 * Sets the name in the server's certificate, if the target has another one.
	 *
	 * @param expected the name
	 * @return this builder
	 */
	public ClientBuilder serverName(String expected) {
		security = new Channels.Security(
				security.ca(), security.certificate(), security.key(), expected, security.plaintext());
		return this;
	}

	/**
	 * Does not use TLS for another machine. Not with a token or a certificate.
	 *
	 * @return this builder
	 */
	public ClientBuilder plaintext() {
		security = new Channels.Security(
				security.ca(), security.certificate(), security.key(), security.serverName(), true);
		return this;
	}

	/**
	 * Sets the name of this program as a participant, for users and logs.
	 *
	 * @param participantName the name, at most 128 characters
	 * @return this builder
	 */
	public ClientBuilder name(String participantName) {
		name = Objects.requireNonNull(participantName);
		return this;
	}

	/**
	 * Sets how broken streams are opened again. Default: {@link Reconnect#DEFAULT}.
	 *
	 * @param policy the policy
	 * @return this builder
	 */
	public ClientBuilder reconnect(Reconnect policy) {
		reconnect = Objects.requireNonNull(policy);
		return this;
	}

	/**
	 * Sets the time limit of each unary call. Default: one minute. {@code sendAndWait} has none.
	 *
	 * @param limit the limit; zero for none
	 * @return this builder
	 */
	public ClientBuilder callTimeout(Duration limit) {
		callTimeout = Objects.requireNonNull(limit);
		return this;
	}

	/**
	 * Sets how long {@link CopilotSession#close} and {@link CopilotClient#close} try to leave sessions of a server that
	 * does not answer. Default: 5 seconds.
	 *
	 * @param limit the limit
	 * @return this builder
	 */
	public ClientBuilder closeTimeout(Duration limit) {
		closeTimeout = Objects.requireNonNull(limit);
		return this;
	}

	/**
	 * Sets the time limit of connecting. Default: 20 seconds.
	 *
	 * @param limit the limit
	 * @return this builder
	 */
	public ClientBuilder connectTimeout(Duration limit) {
		connectTimeout = Objects.requireNonNull(limit);
		return this;
	}

	/**
	 * Sets the executor of handlers, tools and futures. Default: threads of the client. A session runs at most 16
	 * tools and 64 other handlers at once. With Java 21, {@code Executors.newVirtualThreadPerTaskExecutor()} is a
	 * good choice. The client does not shut the executor down.
	 *
	 * @param handlers the executor
	 * @return this builder
	 */
	public ClientBuilder executor(Executor handlers) {
		executor = Objects.requireNonNull(handlers);
		return this;
	}

	/**
	 * Starts a private server, or never does. Default: see {@link #target}. A private server ends when the client is closed or
	 * this program exits. Its sessions end with it, unless {@link #serverArguments} has a {@code --data-dir}. It continues if
	 * the program is killed by a signal that no program can handle.
	 *
	 * @param wanted whether to start one
	 * @return this builder
	 */
	public ClientBuilder launch(boolean wanted) {
		launch = wanted;
		return this;
	}

	/**
	 * Sets the binary of a private server. Default: {@code copilot-grpc} on PATH.
	 *
	 * @param path a path, or a name that is looked up on PATH
	 * @return this builder
	 */
	public ClientBuilder serverBinary(String path) {
		binary = Objects.requireNonNull(path);
		return this;
	}

	/**
	 * Sets further arguments of {@code copilot-grpc serve} for a private server.
	 *
	 * @param arguments the arguments
	 * @return this builder
	 */
	public ClientBuilder serverArguments(String... arguments) {
		serverArguments = List.of(arguments);
		return this;
	}

	/**
	 * Sets further environment variables of a private server.
	 *
	 * @param variables values by name
	 * @return this builder
	 */
	public ClientBuilder serverEnvironment(Map<String, String> variables) {
		serverEnvironment = Map.copyOf(variables);
		return this;
	}

	/**
	 * Changes the channel, for example to add interceptors.
	 *
	 * @param change changes the channel
	 * @return this builder
	 */
	public ClientBuilder customizeChannel(Consumer<? super ManagedChannelBuilder<?>> change) {
		customizer = Objects.requireNonNull(change);
		return this;
	}

	/**
	 * Connects, and checks that the server answers, accepts the caller, and has a version that works.
	 *
	 * @return the client
	 * @throws ServerNotFoundException there is no server, and no binary to start one
	 * @throws ServerIncompatibleException the server is no copilot-grpc, or its version does not work with this library
	 * @throws CopilotException the server refuses the caller
	 * @throws IllegalArgumentException settings contradict each other, or the target is a URL
	 */
	public CopilotClient connect() {
		if (Boolean.TRUE.equals(launch) && !target.isEmpty()) {
			throw new IllegalArgumentException("set either a target, or launch(true)");
		}
		Map<String, String> env = System.getenv();
		String given = target.isEmpty() && !Boolean.TRUE.equals(launch)
				? env.getOrDefault(Target.VARIABLE, "") : target;
		Target chosen = given.isEmpty()
				? Target.defaultSocket(env, System.getProperty("os.name"), home(env))
				: Target.parse(given);
		boolean start = Boolean.TRUE.equals(launch) || launch == null && given.isEmpty() && !chosen.isListening();
		Token used = token(chosen, env);
		security.check(chosen, used != null);
		ServerProcess server = start ? launchServer() : null;
		CopilotClient client = null;
		try {
			client = open(server == null ? chosen : Target.parse(server.target()), used, server);
			return client;
		} finally {
			if (client == null && server != null) {
				server.stop();
			}
		}
	}

	/** The server asks HOME; Java's own property is of the user's account. */
	private static String home(Map<String, String> env) {
		String home = env.getOrDefault("HOME", "");
		return home.startsWith("/") ? home : System.getProperty("user.home");
	}

	/** The token, or the one of the environment; null for none. */
	private Token token(Target chosen, Map<String, String> env) {
		String given = chosen.isUnix() ? "" : env.getOrDefault(Token.VARIABLE, "");
		return token != null || given.isEmpty() ? token : Token.of(given);
	}

	private ServerProcess launchServer() {
		try {
			return ServerProcess.start(
					binary, folder -> serverArguments, serverEnvironment, ServerProcess.START_TIMEOUT);
		} catch (IOException e) {
			throw new ServerNotFoundException(e.getMessage()
					+ "; ClientBuilder.target and " + Target.VARIABLE + " name a server that runs");
		}
	}

	private CopilotClient open(Target address, Token bearer, ServerProcess server) {
		Channels.Opened opened;
		try {
			opened = Channels.open(address, security, channel -> customizer.accept(channel));
		} catch (IOException e) {
			throw new IllegalArgumentException("the certificates cannot be used: " + e.getMessage(), e);
		}
		ScheduledThreadPoolExecutor timer = new ScheduledThreadPoolExecutor(1, ClientBuilder::thread);
		timer.setRemoveOnCancelPolicy(true);
		ExecutorService own = executor == null ? HandlerThreads.open(ClientBuilder::thread) : null;
		Executor runner = executor == null ? own : executor;
		Connection connection = new Connection(
				opened.channel(), timer, runner, bearer == null ? null : new Bearer(bearer, runner), name, reconnect,
				callTimeout, closeTimeout);
		Runnable release = () -> {
			opened.channel().shutdownNow();
			opened.release().run();
			timer.shutdownNow();
			if (own != null) {
				own.shutdown();
			}
		};
		boolean checked = false;
		try {
			check(connection, address);
			checked = true;
			return new CopilotClient(connection, server, release);
		} finally {
			if (!checked) {
				release.run();
			}
		}
	}

	private void check(Connection connection, Target address) {
		try {
			GetServerInfoResponse info = Futures.await(connection.unary(
					RuntimeServiceGrpc.getGetServerInfoMethod(), GetServerInfoRequest.getDefaultInstance(), null,
					connectTimeout));
			ServerVersion.check(info.getVersion(), address);
		} catch (ConnectionLostException e) {
			throw new ServerNotFoundException("no server at " + address + " (" + e.getMessage()
					+ "): start it with `copilot-grpc serve`, or name another one with ClientBuilder.target or "
					+ Target.VARIABLE);
		} catch (CopilotException e) {
			if (e.code() == Status.Code.UNIMPLEMENTED) {
				throw new ServerIncompatibleException(
						"the server at " + address + " is no copilot-grpc: " + e.getMessage());
			}
			throw e;
		}
	}

	private static Thread thread(Runnable task) {
		Thread thread = new Thread(task, "copilot-grpc-" + THREADS.incrementAndGet());
		thread.setDaemon(true);
		return thread;
	}
}
