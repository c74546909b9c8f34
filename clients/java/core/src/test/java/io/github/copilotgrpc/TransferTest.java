package io.github.copilotgrpc;

import static io.github.copilotgrpc.FakeServer.refusal;
import static io.github.copilotgrpc.FakeServer.soon;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.google.protobuf.ByteString;
import io.github.copilotgrpc.FakeServer.Played;
import io.github.copilotgrpc.bridge.v1.ExportSessionHeader;
import io.github.copilotgrpc.bridge.v1.ExportSessionRequest;
import io.github.copilotgrpc.bridge.v1.ExportSessionResponse;
import io.github.copilotgrpc.bridge.v1.ImportSessionHeader;
import io.github.copilotgrpc.bridge.v1.ImportSessionResponse;
import io.github.copilotgrpc.errors.CopilotException;
import io.github.copilotgrpc.errors.SessionBusyException;
import io.github.copilotgrpc.errors.SessionExistsException;
import io.grpc.Status;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Archives of sessions. */
class TransferTest {
	/** SHA-256 of "archive", of {@code printf archive | sha256sum}. */
	private static final String DIGEST = "0eb3e36bfb24dcd9bb1d1bece1531216b59539a8fde17ee80224af0653c92aa3";

	private FakeServer fake;
	private CopilotClient client;
	private CopilotSession session;
	@TempDir
	private Path folder;

	@BeforeEach
	void connect() throws Exception {
		fake = new FakeServer();
		client = fake.connect();
		session = client.session("s1");
	}

	@AfterEach
	void close() {
		client.close();
		fake.close();
	}

	private static ExportSessionHeader header(long size) {
		return ExportSessionHeader.newBuilder().setSizeBytes(size).setSha256(DIGEST).addMissingSecrets("a.b").build();
	}

	/** Plays the server of an export. */
	private Played<ExportSessionRequest, ExportSessionResponse> exported(String... chunks) throws InterruptedException {
		Played<ExportSessionRequest, ExportSessionResponse> stream = soon(fake.exports);
		stream.send(ExportSessionResponse.newBuilder().setHeader(header(7)).build());
		for (String chunk : chunks) {
			stream.send(ExportSessionResponse.newBuilder().setChunk(ByteString.copyFromUtf8(chunk)).build());
		}
		return stream;
	}

	/** The cause of a failure that comes soon. */
	private static Throwable failure(CompletableFuture<?> future) {
		return assertThrows(ExecutionException.class, () -> soon(future)).getCause();
	}

	@Test
	void exportWritesAllPieces() throws Exception {
		ByteArrayOutputStream out = new ByteArrayOutputStream();
		CompletableFuture<ExportSessionHeader> toStream = session.exportToAsync(out);
		var stream = exported("arch", "ive");
		assertEquals("s1", stream.request.getSessionId());
		stream.end();
		assertEquals(header(7), soon(toStream));
		assertEquals("archive", out.toString());

		Path file = folder.resolve("session.tar.gz");
		CompletableFuture<ExportSessionHeader> toFile = session.exportToAsync(file);
		exported("archive").end();
		assertEquals(header(7), soon(toFile));
		assertEquals("archive", Files.readString(file));
		if (Files.getFileStore(file).supportsFileAttributeView("posix")) {
			assertEquals("[OWNER_READ, OWNER_WRITE]", Files.getPosixFilePermissions(file).stream().sorted().toList().toString());
		}
	}

	@Test
	void damagedExportIsAnErrorWithoutAFile() throws Exception {
		Path file = folder.resolve("session.tar.gz");
		for (String[] chunks : new String[][] {{"arch"}, {"archivX"}, {"archive", "!"}, {}}) {
			CompletableFuture<ExportSessionHeader> exporting = session.exportToAsync(file);
			exported(chunks).end();
			CopilotException error = assertInstanceOf(CopilotException.class, failure(exporting));
			assertEquals(Status.Code.DATA_LOSS, error.code(), Arrays.toString(chunks));
			assertFalse(Files.exists(file));
		}
	}

	@Test
	void refusedExportLeavesNoFile() throws Exception {
		Path file = folder.resolve("session.tar.gz");
		CompletableFuture<ExportSessionHeader> exporting = session.exportToAsync(file);
		soon(fake.exports).fail(refusal(Status.Code.FAILED_PRECONDITION, "SESSION_BUSY", "a turn runs", ""));
		assertInstanceOf(SessionBusyException.class, failure(exporting));
		assertFalse(Files.exists(file));
	}

	@Test
	void exportReplacesNoFile() throws Exception {
		Path file = Files.writeString(folder.resolve("session.tar.gz"), "other");
		UncheckedIOException error = assertThrows(UncheckedIOException.class, () -> session.exportTo(file));
		assertInstanceOf(FileAlreadyExistsException.class, error.getCause());
		assertEquals("other", Files.readString(file));
	}

	@Test
	void exportEndsTheCallIfTheStreamFails() throws Exception {
		IOException full = new IOException("full");
		CompletableFuture<ExportSessionHeader> exporting = session.exportToAsync(new OutputStream() {
			@Override
			public void write(int b) throws IOException {
				throw full;
			}
		});
		var stream = exported("arch");
		assertEquals(full, assertInstanceOf(UncheckedIOException.class, failure(exporting)).getCause());
		soon(stream.gone);
	}

	@Test
	void cancelledExportEndsTheCall() throws Exception {
		CompletableFuture<ExportSessionHeader> exporting = session.exportToAsync(new ByteArrayOutputStream());
		var stream = exported("arch");
		exporting.cancel(true);
		soon(stream.gone);
	}

	@Test
	void importSendsTheArchiveInPieces() throws Exception {
		byte[] archive = new byte[600_000];
		for (int i = 0; i < archive.length; i++) {
			archive[i] = (byte) (i * 31);
		}
		ImportSessionHeader as = ImportSessionHeader.newBuilder().setSessionId("copy").setProviderRef("p").build();
		CompletableFuture<ImportSessionResponse> importing =
				client.importSessionAsync(new ByteArrayInputStream(archive), as);
		var stream = soon(fake.imports);
		assertEquals(as, stream.request.getHeader());
		ByteString received = ByteString.EMPTY;
		for (var piece = stream.next(); piece.isPresent(); piece = stream.next()) {
			received = received.concat(piece.get().getChunk());
		}
		assertArrayEquals(archive, received.toByteArray());
		ImportSessionResponse made = ImportSessionResponse.newBuilder().setOriginSessionId("s1").setEventCount(3).build();
		stream.send(made);
		stream.end();
		assertEquals(made, soon(importing));
	}

	/** An archive without an end, which a server does not read. */
	private static final class Endless extends InputStream {
		@Override
		public int read() {
			return 0;
		}

		@Override
		public int read(byte[] target, int offset, int length) {
			return length;
		}
	}

	@Test
	void refusalEndsAnImportThatStillSends() throws Exception {
		CompletableFuture<ImportSessionResponse> importing =
				client.importSessionAsync(new Endless(), ImportSessionHeader.getDefaultInstance());
		soon(fake.imports).fail(refusal(Status.Code.ALREADY_EXISTS, "SESSION_EXISTS", "exists", "session_id"));
		assertInstanceOf(SessionExistsException.class, failure(importing));
	}

	@Test
	void cancelledImportEndsTheCallWhileItSends() throws Exception {
		CompletableFuture<ImportSessionResponse> importing =
				client.importSessionAsync(new Endless(), ImportSessionHeader.getDefaultInstance());
		var stream = soon(fake.imports);
		importing.cancel(true);
		soon(stream.gone);
	}

	@Test
	void unreadableArchiveEndsTheCall() throws Exception {
		IOException broken = new IOException("broken");
		CompletableFuture<Void> arrived = new CompletableFuture<>();
		CompletableFuture<ImportSessionResponse> importing = client.importSessionAsync(new InputStream() {
			@Override
			public int read() throws IOException {
				arrived.join();
				throw broken;
			}
		}, ImportSessionHeader.getDefaultInstance());
		var stream = soon(fake.imports);
		arrived.complete(null);
		assertEquals(broken, assertInstanceOf(UncheckedIOException.class, failure(importing)).getCause());
		soon(stream.gone);
	}

	@Test
	void cancelledPromptEndsItsUpload() throws Exception {
		Prompt prompt = Prompt.of("Look").attach(Attachment.stream(new Endless(), "text/plain", "endless"));
		Future<Receipt> sending = session.sendAsync(prompt);
		var stream = soon(fake.uploads);
		sending.cancel(true);
		soon(stream.gone);
	}
}
