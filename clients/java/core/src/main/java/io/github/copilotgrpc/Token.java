package io.github.copilotgrpc;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Objects;

/**
 * A source of bearer tokens. It is called before each call of gRPC, from several threads, and may block for a short
 * time.
 */
@FunctionalInterface
public interface Token {
	/** The environment variable with the token of clients that are given none. */
	String VARIABLE = "COPILOT_GRPC_TOKEN";

	/**
	 * Returns the current token.
	 *
	 * @return the token
	 * @throws Exception there is none; the call fails
	 */
	String get() throws Exception;

	/**
	 * Returns a source of always the same token.
	 *
	 * @param token the token
	 * @return the source
	 */
	static Token of(String token) {
		Objects.requireNonNull(token);
		return () -> token;
	}

	/**
	 * Returns a source that reads a file, without surrounding space. The file is read again after it has changed.
	 *
	 * @param path the file
	 * @return the source
	 */
	static Token file(Path path) {
		record Content(Object version, String token) {}

		return new Token() {
			private volatile Content last = new Content("", "");

			@Override
			public String get() throws IOException {
				BasicFileAttributes now = Files.readAttributes(path, BasicFileAttributes.class);
				Object version = now.lastModifiedTime() + " " + now.size() + " " + now.fileKey();
				Content content = last;
				if (!content.version().equals(version)) {
					content = new Content(version, Files.readString(path).strip());
					last = content;
				}
				return content.token();
			}
		};
	}
}
