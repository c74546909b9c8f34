package io.github.copilotgrpc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.github.copilotgrpc.errors.ConnectionLostException;
import io.grpc.Metadata;
import io.grpc.netty.shaded.io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.shaded.io.netty.handler.ssl.ClientAuth;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslContext;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.Base64;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** TLS with certificates of both sides. */
class TlsTest {
	private static final String PASSWORD = "changeit";

	@TempDir
	private static Path folder;

	private static Path certificate;
	private static Path key;

	/** Makes a certificate that signs itself. */
	@BeforeAll
	static void makeCertificate() throws Exception {
		Path store = folder.resolve("store.p12");
		Process keytool = new ProcessBuilder(
				Path.of(System.getProperty("java.home"), "bin", "keytool").toString(), "-genkeypair", "-alias", "a",
				"-keyalg", "EC", "-dname", "CN=tests", "-ext", "san=dns:localhost,dns:agents.example",
				"-ext", "bc=ca:true", "-storetype", "PKCS12", "-keystore", store.toString(), "-storepass", PASSWORD)
				.inheritIO().start();
		assertEquals(0, keytool.waitFor());
		KeyStore keys = KeyStore.getInstance("PKCS12");
		try (InputStream in = Files.newInputStream(store)) {
			keys.load(in, PASSWORD.toCharArray());
		}
		certificate = pem("CERTIFICATE", keys.getCertificate("a").getEncoded());
		key = pem("PRIVATE KEY", keys.getKey("a", PASSWORD.toCharArray()).getEncoded());
	}

	private static Path pem(String type, byte[] content) throws Exception {
		String text = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(content);
		return Files.writeString(folder.resolve(type.replace(' ', '-') + ".pem"),
				"-----BEGIN " + type + "-----\n" + text + "\n-----END " + type + "-----\n");
	}

	private static FakeServer serve(ClientAuth auth) throws Exception {
		SslContext tls = GrpcSslContexts.forServer(certificate.toFile(), key.toFile())
				.trustManager(certificate.toFile()).clientAuth(auth).build();
		return new FakeServer(builder -> builder.sslContext(tls));
	}

	private static String localhost(FakeServer fake) {
		return fake.target().replace("127.0.0.1", "localhost");
	}

	@Test
	void mutualTlsAndAToken() throws Exception {
		try (FakeServer fake = serve(ClientAuth.REQUIRE);
				CopilotClient client = CopilotClient.builder().target(localhost(fake)).trust(certificate)
						.certificate(certificate, key).token(Token.of("secret")).connect()) {
			assertEquals("0.1.0", client.serverInfo().getVersion());
			assertEquals("Bearer secret", FakeServer.soon(fake.headers)
					.get(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER)));
		}
	}

	@Test
	void serverNameIsChecked() throws Exception {
		try (FakeServer fake = serve(ClientAuth.NONE)) {
			ClientBuilder builder = CopilotClient.builder().target(localhost(fake)).trust(certificate);
			builder.serverName("agents.example").connect().close();
			assertThrows(ConnectionLostException.class, () -> builder.serverName("other.example").connect());
		}
	}

	@Test
	void callersWithoutACertificateAreRefused() throws Exception {
		try (FakeServer fake = serve(ClientAuth.REQUIRE)) {
			assertThrows(ConnectionLostException.class,
					() -> CopilotClient.builder().target(localhost(fake)).trust(certificate).connect());
			assertThrows(ConnectionLostException.class, () -> CopilotClient.connect(localhost(fake)));
		}
	}

	@Test
	void unreadableCertificatesAreRefused() {
		assertThrows(IllegalArgumentException.class, () -> CopilotClient.builder().target("localhost:1")
				.trust(folder.resolve("missing.pem")).connect());
	}
}
