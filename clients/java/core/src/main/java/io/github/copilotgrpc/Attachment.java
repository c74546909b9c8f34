package io.github.copilotgrpc;

import com.google.protobuf.ByteString;
import io.github.copilotgrpc.cli.v1.AttachmentBlob;
import io.github.copilotgrpc.cli.v1.AttachmentDirectory;
import io.github.copilotgrpc.cli.v1.AttachmentFile;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.URLConnection;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Objects;

/** An attachment of a prompt. */
public final class Attachment {
	/** Larger attachments are sent in pieces. */
	private static final long INLINE = 1 << 20;

	private interface Content {
		InputStream open() throws IOException;
	}

	private final io.github.copilotgrpc.cli.v1.Attachment message;
	private final Content content; // null for an attachment that the CLI reads
	private final long size; // negative if unknown

	private Attachment(io.github.copilotgrpc.cli.v1.Attachment message, Content content, long size) {
		this.message = message;
		this.content = content;
		this.size = size;
	}

	/**
	 * Attaches a file on the CLI's machine; the CLI reads it.
	 *
	 * @param path the file; should be absolute
	 * @return the attachment
	 */
	public static Attachment file(String path) {
		AttachmentFile file = AttachmentFile.newBuilder().setPath(path).setDisplayName(baseName(path)).build();
		return of(io.github.copilotgrpc.cli.v1.Attachment.newBuilder().setFile(file).build());
	}

	/**
	 * Attaches a directory on the CLI's machine; the CLI reads it.
	 *
	 * @param path the directory; should be absolute
	 * @return the attachment
	 */
	public static Attachment directory(String path) {
		AttachmentDirectory directory =
				AttachmentDirectory.newBuilder().setPath(path).setDisplayName(baseName(path)).build();
		return of(io.github.copilotgrpc.cli.v1.Attachment.newBuilder().setDirectory(directory).build());
	}

	/**
	 * Attaches bytes, such as an image.
	 *
	 * @param data the bytes
	 * @param mimeType their type
	 * @param name name for the agent; empty for none
	 * @return the attachment
	 */
	public static Attachment data(byte[] data, String mimeType, String name) {
		byte[] copy = data.clone();
		return new Attachment(blob(mimeType, name), () -> new ByteArrayInputStream(copy), copy.length);
	}

	/**
	 * Attaches the content of a file of this machine. The type follows from its name.
	 *
	 * @param path the file
	 * @return the attachment
	 * @throws IOException the file cannot be read
	 */
	public static Attachment upload(Path path) throws IOException {
		String name = String.valueOf(path.getFileName());
		String probed = Files.probeContentType(path);
		String guessed = probed != null ? probed : URLConnection.guessContentTypeFromName(name);
		String mimeType = guessed != null ? guessed : "application/octet-stream";
		return new Attachment(blob(mimeType, name), () -> Files.newInputStream(path), Files.size(path));
	}

	/**
	 * Attaches bytes that are read once, while they are sent. {@link CopilotSession#send(Prompt)} sends them in
	 * pieces; other calls collect them first. The stream is closed.
	 *
	 * @param data the bytes
	 * @param mimeType their type
	 * @param name name for the agent; empty for none
	 * @return the attachment
	 */
	public static Attachment stream(InputStream data, String mimeType, String name) {
		Objects.requireNonNull(data);
		return new Attachment(blob(mimeType, name), () -> data, -1);
	}

	/**
	 * Attaches anything else that the CLI knows, such as a selection or an issue.
	 *
	 * @param message the attachment
	 * @return the attachment
	 */
	public static Attachment of(io.github.copilotgrpc.cli.v1.Attachment message) {
		return new Attachment(message, null, 0);
	}

	private static io.github.copilotgrpc.cli.v1.Attachment blob(String mimeType, String name) {
		AttachmentBlob.Builder blob = AttachmentBlob.newBuilder().setMimeType(mimeType);
		if (!name.isEmpty()) {
			blob.setDisplayName(name);
		}
		return io.github.copilotgrpc.cli.v1.Attachment.newBuilder().setBlob(blob).build();
	}

	private static String baseName(String path) {
		String trimmed = path.replaceAll("[/\\\\]+$", "");
		String name = trimmed.substring(Math.max(trimmed.lastIndexOf('/'), trimmed.lastIndexOf('\\')) + 1);
		return name.isEmpty() ? path : name;
	}

	/** Whether the bytes are to be sent in pieces. */
	boolean isLarge() {
		return content != null && (size < 0 || size > INLINE);
	}

	/** The attachment without bytes. */
	io.github.copilotgrpc.cli.v1.Attachment message() {
		return message;
	}

	InputStream open() throws IOException {
		return content.open();
	}

	/** The attachment with its bytes. Blocks. */
	io.github.copilotgrpc.cli.v1.Attachment whole() throws IOException {
		if (content == null) {
			return message;
		}
		try (InputStream in = content.open()) {
			AttachmentBlob blob = message.getBlob().toBuilder().setData(ByteString.readFrom(in)).build();
			return message.toBuilder().setBlob(blob).build();
		}
	}
}
