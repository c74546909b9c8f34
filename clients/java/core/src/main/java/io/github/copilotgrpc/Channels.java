package io.github.copilotgrpc;

import io.grpc.ManagedChannel;
import io.grpc.netty.shaded.io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.MultiThreadIoEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.Epoll;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollIoHandler;
import io.grpc.netty.shaded.io.netty.channel.nio.NioIoHandler;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslContextBuilder;
import io.grpc.netty.shaded.io.netty.util.concurrent.DefaultThreadFactory;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.logging.Level;
import java.util.logging.Logger;

/** Opens channels. */
final class Channels {
	/** A page of events has up to 3 MiB, and lists of callbacks and sessions have no limit in bytes. */
	private static final int MAX_RECEIVE = 16 << 20;
	/** Calls that only read: gRPC repeats them. The library repeats calls that have a request id. */
	private static final Map<String, List<String>> READS = Map.of(
			"SessionService",
			List.of("GetSession", "ListSessions", "GetLastSession", "GetForegroundSession", "ListEvents"),
			"CallbackService", List.of("ListPending"),
			"RuntimeService", List.of("GetServerInfo", "ListRuntimes", "Ping", "GetAuthStatus", "ListModels"));

	// gRPC sets an option of TCP on every socket, and Netty warns about it at each connection to a unix socket.
	private static final Logger NETTY =
			Logger.getLogger("io.grpc.netty.shaded.io.netty.bootstrap.Bootstrap");

	static {
		if (NETTY.getLevel() == null) {
			NETTY.setLevel(Level.SEVERE);
		}
	}

	private Channels() {}

	/**
	 * Security of a channel.
	 *
	 * @param ca certificates that sign the server's; null for the system's
	 * @param certificate this client's certificate; null for none
	 * @param key the certificate's key; null for none
	 * @param serverName name in the server's certificate; empty for the target's
	 * @param plaintext no TLS for another machine
	 */
	record Security(Path ca, Path certificate, Path key, String serverName, boolean plaintext) {
		void check(Target target, boolean hasToken) {
			if ((certificate == null) != (key == null)) {
				throw new IllegalArgumentException("a certificate and its key belong together");
			}
			if (plaintext && (hasTls() || hasToken) && !target.isLocal()) {
				throw new IllegalArgumentException("plaintext: a certificate or a token needs TLS");
			}
		}

		boolean hasTls() {
			return ca != null || certificate != null;
		}
	}

	/** A channel, and what ends with it. */
	record Opened(ManagedChannel channel, Runnable release) {}

	/** Opens a channel; connecting happens at the first call. Throws IOException if a certificate cannot be read. */
	static Opened open(Target target, Security security, Consumer<NettyChannelBuilder> customizer) throws IOException {
		NettyChannelBuilder builder;
		Runnable release = () -> { };
		if (target.isUnix()) {
			EventLoopGroup group = unixGroup();
			release = () -> group.shutdownGracefully(0, 2, TimeUnit.SECONDS);
			builder = unix(target, group);
		} else {
			builder = NettyChannelBuilder.forTarget(target.text());
		}
		if (security.hasTls() || !(security.plaintext() || target.isLocal())) {
			builder.sslContext(tls(security).build());
			if (!security.serverName().isEmpty()) {
				builder.overrideAuthority(security.serverName());
			}
		} else {
			builder.usePlaintext();
		}
		builder.maxInboundMessageSize(MAX_RECEIVE).userAgent("copilot-grpc-java")
				.keepAliveTime(30, TimeUnit.SECONDS).keepAliveTimeout(20, TimeUnit.SECONDS)
				.defaultServiceConfig(serviceConfig()).enableRetry();
		customizer.accept(builder);
		return new Opened(builder.build(), release);
	}

	/** Unix sockets by epoll where there is one, and by the JDK elsewhere. */
	private static NettyChannelBuilder unix(Target target, EventLoopGroup group) {
		NettyChannelBuilder builder = Epoll.isAvailable()
				? NettyChannelBuilder.forAddress(new DomainSocketAddress(target.path()))
						.channelType(EpollDomainSocketChannel.class)
				: NettyChannelBuilder.forAddress(UnixDomainSocketAddress.of(target.path()))
						.channelType(NioDomainSocketChannel.class);
		return builder.eventLoopGroup(group).overrideAuthority("localhost");
	}

	private static EventLoopGroup unixGroup() {
		return new MultiThreadIoEventLoopGroup(1, new DefaultThreadFactory("copilot-grpc", true),
				Epoll.isAvailable() ? EpollIoHandler.newFactory() : NioIoHandler.newFactory());
	}

	private static SslContextBuilder tls(Security security) {
		SslContextBuilder tls = GrpcSslContexts.forClient();
		if (security.ca() != null) {
			tls.trustManager(security.ca().toFile());
		}
		if (security.certificate() != null) {
			tls.keyManager(security.certificate().toFile(), security.key().toFile());
		}
		return tls;
	}

	private static Map<String, ?> serviceConfig() {
		List<Map<String, String>> names = READS.entrySet().stream().flatMap(service -> service.getValue().stream()
				.map(method -> Map.of("service", "copilot.bridge.v1." + service.getKey(), "method", method))).toList();
		Map<String, ?> retry = Map.of("maxAttempts", 4.0, "initialBackoff", "0.1s", "maxBackoff", "1s",
				"backoffMultiplier", 2.0, "retryableStatusCodes", List.of("UNAVAILABLE"));
		return Map.of("methodConfig", List.of(Map.of("name", names, "retryPolicy", retry)));
	}
}
