package io.github.copilotgrpc;

import com.google.protobuf.ByteString;
import io.github.copilotgrpc.bridge.v1.ExportSessionHeader;
import io.github.copilotgrpc.bridge.v1.ExportSessionRequest;
import io.github.copilotgrpc.bridge.v1.ExportSessionResponse;
import io.github.copilotgrpc.bridge.v1.ImportSessionHeader;
import io.github.copilotgrpc.bridge.v1.ImportSessionRequest;
import io.github.copilotgrpc.bridge.v1.ImportSessionResponse;
import io.github.copilotgrpc.bridge.v1.SessionServiceGrpc;
import io.github.copilotgrpc.errors.CopilotException;
import io.grpc.Status;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.channels.Channels;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.HexFormat;
import java.util.Set;
import java.util.concurrent.CompletableFuture;

/**
 * Exports and imports sessions as archives. Threads of the client's executor read and write the streams of programs, and
 * complete the futures.
 */
record Transfer(Connection connection) {
	/** The server makes the whole archive before it sends the first piece. */
	private static final Duration SILENCE = Duration.ofMinutes(5);

	/** Writes an archive. Returns its header. */
	private interface Target {
		ExportSessionHeader write(Reader<ExportSessionResponse> pieces) throws IOException;
	}

	CompletableFuture<ExportSessionHeader> exportTo(String sessionId, OutputStream out) {
		return export(sessionId, pieces -> write(sessionId, pieces, out));
	}

	CompletableFuture<ExportSessionHeader> exportTo(String sessionId, Path file) {
		return export(sessionId, pieces -> {
			var created = Files.newByteChannel(
					file, Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE), onlyForOwner(file));
			boolean whole = false;
			try {
				ExportSessionHeader header;
				try (OutputStream out = Channels.newOutputStream(created)) {
					header = write(sessionId, pieces, out);
				}
				whole = true;
				return header;
			} finally {
				if (!whole) {
					Files.deleteIfExists(file);
				}
			}
		});
	}

	private CompletableFuture<ExportSessionHeader> export(String sessionId, Target target) {
		ExportSessionRequest request = ExportSessionRequest.newBuilder().setSessionId(sessionId).build();
		CompletableFuture<ExportSessionHeader> result = new CompletableFuture<>();
		connection.executor().execute(() -> {
			if (result.isDone()) {
				return; // cancelled
			}
			Reader<ExportSessionResponse> pieces =
					connection.stream(SessionServiceGrpc.getExportSessionMethod(), request, SILENCE);
			Futures.onCancel(result, pieces::close);
			try {
				result.complete(target.write(pieces));
			} catch (IOException e) {
				result.completeExceptionally(new UncheckedIOException(e));
			} catch (RuntimeException e) {
				result.completeExceptionally(e);
			} finally {
				pieces.close();
			}
		});
		return result;
	}

	/** Writes all pieces, and compares them with the header. */
	private static ExportSessionHeader write(
			String sessionId, Reader<ExportSessionResponse> pieces, OutputStream out) throws IOException {
		ExportSessionHeader header = ExportSessionHeader.getDefaultInstance();
		MessageDigest digest = sha256();
		long size = 0;
		for (var piece = Futures.await(pieces.next()); piece != null; piece = Futures.await(pieces.next())) {
			if (piece.hasHeader()) {
				header = piece.getHeader();
			}
			ByteString chunk = piece.getChunk();
			size += chunk.size();
			digest.update(chunk.asReadOnlyByteBuffer());
			chunk.writeTo(out);
		}
		if (size != header.getSizeBytes() || !HexFormat.of().formatHex(digest.digest()).equals(header.getSha256())) {
			throw new CopilotException(
					"the archive of session \"" + sessionId + "\" was cut off or changed on its way",
					new CopilotException.Details(Status.Code.DATA_LOSS, ""), null);
		}
		return header;
	}

	/** A stream can be read once, so the call is not repeated. */
	CompletableFuture<ImportSessionResponse> importFrom(InputStream archive, ImportSessionHeader header) {
		var call = connection.call(SessionServiceGrpc.getImportSessionMethod(), Duration.ZERO);
		var imported = new Upload<>(call).start(connection.executor(), null, upload -> {
			upload.send(ImportSessionRequest.newBuilder().setHeader(header).build());
			upload.sendPieces(archive, piece -> ImportSessionRequest.newBuilder().setChunk(piece).build());
		});
		return Futures.published(imported, connection.executor());
	}

	/** Attributes of a new file that has a conversation. */
	private static FileAttribute<?>[] onlyForOwner(Path file) {
		return file.getFileSystem().supportedFileAttributeViews().contains("posix")
				? new FileAttribute<?>[] {
					PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"))}
				: new FileAttribute<?>[0];
	}

	private static MessageDigest sha256() {
		try {
			return MessageDigest.getInstance("SHA-256");
		} catch (NoSuchAlgorithmException e) {
			throw new IllegalStateException(e); // every Java has it
		}
	}
}
