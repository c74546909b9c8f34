package io.github.copilotgrpc;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * The address of a server.
 *
 * @param text {@code unix:PATH}, {@code HOST:PORT}, or another target of gRPC
 */
record Target(String text) {
	static final String VARIABLE = "COPILOT_GRPC_TARGET";
	private static final Pattern URL = Pattern.compile("https?://", Pattern.CASE_INSENSITIVE);
	private static final Pattern LOOPBACK = Pattern.compile(
			"(localhost|127(\\.\\d{1,3}){3}|\\[?(::1|0:0:0:0:0:0:0:1)\\]?)(:\\d+)?", Pattern.CASE_INSENSITIVE);

	/** Throws IllegalArgumentException if the text is a URL of HTTP. */
	static Target parse(String text) {
		if (URL.matcher(text).lookingAt()) {
			throw new IllegalArgumentException("target \"" + text + "\" is a URL: a target is host:port,"
					+ " unix:/path or dns:///host:port, and TLS is an option of the client");
		}
		return new Target(text.startsWith("/") ? "unix:" + text : text);
	}

	/** The default socket of `copilot-grpc serve`. */
	static Target defaultSocket(Map<String, String> env, String os, String home) {
		return new Target("unix:" + defaultDirectory(env, os, home).resolve("copilot-grpc.sock"));
	}

	private static Path defaultDirectory(Map<String, String> env, String os, String home) {
		String runtime = env.getOrDefault("XDG_RUNTIME_DIR", "");
		if (runtime.startsWith("/")) {
			return Path.of(runtime);
		}
		String cache = env.getOrDefault("XDG_CACHE_HOME", "");
		if (os.startsWith("Mac")) {
			return Path.of(home, "Library", "Caches", "copilot-grpc");
		}
		return (cache.startsWith("/") ? Path.of(cache) : Path.of(home, ".cache")).resolve("copilot-grpc");
	}

	boolean isUnix() {
		return text.startsWith("unix:");
	}

	/** The path of a unix socket: unix:PATH or unix:///PATH. */
	String path() {
		String path = text.substring("unix:".length());
		return path.startsWith("///") ? path.substring(2) : path;
	}

	/** Whether traffic to the target stays on this machine. */
	boolean isLocal() {
		String address = text.substring(text.lastIndexOf('/') + 1).replaceFirst("^(dns|ipv4|ipv6):", "");
		return isUnix() || LOOPBACK.matcher(address).matches();
	}

	/** Whether a server listens on a unix socket. */
	boolean isListening() {
		try (SocketChannel probe = SocketChannel.open(StandardProtocolFamily.UNIX)) {
			return probe.connect(UnixDomainSocketAddress.of(path()));
		} catch (IOException | IllegalArgumentException | UnsupportedOperationException e) {
			return false;
		}
	}

	@Override
	public String toString() {
		return text;
	}
}
