package io.github.copilotgrpc;

import com.google.protobuf.Timestamp;
import io.github.copilotgrpc.bridge.v1.SessionFileSystem;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceAppendFileResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceExistsResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceMkdirResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceReadFileBytesResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceReadFileResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceReaddirResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceReaddirWithTypesResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceRenameResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceRmResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceStatResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceWriteFileBytesResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceWriteFileResponse;
import io.github.copilotgrpc.cli.v1.SessionFsError;
import io.github.copilotgrpc.cli.v1.SessionFsErrorCode;
import io.github.copilotgrpc.cli.v1.SessionFsReaddirWithTypesEntry;
import io.github.copilotgrpc.cli.v1.SessionFsReaddirWithTypesEntryType;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.NoSuchFileException;
import java.time.Instant;
import java.util.Base64;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * Stores the files of one session, which the CLI would write to its home.
 *
 * <p>The session can only be used while a participant with its files is attached; disconnecting and deleting write
 * too. The session has no SQLite database.
 *
 * @param store the files of this session
 * @param initialDirectory the session's first working directory, a path in the store
 * @param statePath directory in the store for the CLI's files about the session
 * @param key sessions with the same key share a CLI process; empty for one for this session
 */
public record SessionFiles(FileStore store, String initialDirectory, String statePath, String key) {
	/**
	 * Refuses nulls.
	 *
	 * @param store the files of this session
	 * @param initialDirectory the session's first working directory
	 * @param statePath directory in the store for the CLI's files about the session
	 * @param key sessions with the same key share a CLI process; empty for one for this session
	 */
	public SessionFiles {
		Objects.requireNonNull(store);
		Objects.requireNonNull(initialDirectory);
		Objects.requireNonNull(statePath);
		Objects.requireNonNull(key);
	}

	/**
	 * Stores the files with the usual paths: "/" and "/session-state".
	 *
	 * @param store the files of this session
	 */
	public SessionFiles(FileStore store) {
		this(store, "/", "/session-state", "");
	}

	/** The configuration for the server. */
	SessionFileSystem message() {
		return SessionFileSystem.newBuilder().setKey(key).setInitialDirectory(initialDirectory)
				.setStatePath(statePath).setBinary(true).build();
	}

	private interface Action {
		void run() throws IOException;
	}

	/** Runs an action. Returns its error as a message; null for success. */
	private static SessionFsError attempt(Action action) {
		try {
			action.run();
			return null;
		} catch (IOException e) {
			return SessionFsError.newBuilder().setMessage(String.valueOf(e.getMessage()))
					.setCode(e instanceof NoSuchFileException
							? SessionFsErrorCode.SESSION_FS_ERROR_CODE_ENOENT
							: SessionFsErrorCode.SESSION_FS_ERROR_CODE_UNKNOWN)
					.build();
		}
	}

	void addHandlers(HandlerOptions<?> options) {
		addReads(options);
		addDirectories(options);
		options.on(CallbackType.FS_WRITE_FILE, request -> {
			var response = CallbackSessionFsServiceWriteFileResponse.newBuilder();
			set(response::setValue, () -> store.write(request.getPath(), utf8(request.getContent())));
			return response.build();
		});
		options.on(CallbackType.FS_WRITE_FILE_BYTES, request -> {
			var response = CallbackSessionFsServiceWriteFileBytesResponse.newBuilder();
			byte[] data = Base64.getDecoder().decode(request.getContent());
			set(response::setValue, () -> store.write(request.getPath(), data));
			return response.build();
		});
		options.on(CallbackType.FS_APPEND_FILE, request -> {
			var response = CallbackSessionFsServiceAppendFileResponse.newBuilder();
			set(response::setValue, () -> store.append(request.getPath(), utf8(request.getContent())));
			return response.build();
		});
		options.on(CallbackType.FS_RENAME, request -> {
			var response = CallbackSessionFsServiceRenameResponse.newBuilder();
			set(response::setValue, () -> store.rename(request.getSrc(), request.getDest()));
			return response.build();
		});
		options.on(CallbackType.FS_RM, request -> {
			var response = CallbackSessionFsServiceRmResponse.newBuilder();
			set(response::setValue, () -> {
				try {
					store.remove(request.getPath(), request.getRecursive());
				} catch (NoSuchFileException e) {
					if (!request.getForce()) {
						throw e;
					}
				}
			});
			return response.build();
		});
	}

	private void addReads(HandlerOptions<?> options) {
		options.on(CallbackType.FS_READ_FILE, request -> {
			var response = CallbackSessionFsServiceReadFileResponse.newBuilder();
			set(response::setError, () -> response.setContent(
					new String(store.read(request.getPath()), StandardCharsets.UTF_8)));
			return response.build();
		});
		options.on(CallbackType.FS_READ_FILE_BYTES, request -> {
			var response = CallbackSessionFsServiceReadFileBytesResponse.newBuilder();
			set(response::setError, () -> response.setContent(
					Base64.getEncoder().encodeToString(store.read(request.getPath()))));
			return response.build();
		});
		options.on(CallbackType.FS_EXISTS, request -> CallbackSessionFsServiceExistsResponse.newBuilder()
				.setExists(attempt(() -> store.stat(request.getPath())) == null).build());
		options.on(CallbackType.FS_STAT, request -> {
			var response = CallbackSessionFsServiceStatResponse.newBuilder()
					.setMtime(Timestamp.getDefaultInstance()).setBirthtime(Timestamp.getDefaultInstance());
			set(response::setError, () -> {
				FileStore.Info info = store.stat(request.getPath());
				response.setIsDirectory(info.isDirectory()).setIsFile(!info.isDirectory()).setSize(info.size())
						.setMtime(time(info.modifiedAt())).setBirthtime(time(info.modifiedAt()));
			});
			return response.build();
		});
	}

	private void addDirectories(HandlerOptions<?> options) {
		options.on(CallbackType.FS_MKDIR, request -> {
			var response = CallbackSessionFsServiceMkdirResponse.newBuilder();
			set(response::setValue, () -> store.makeDirectory(request.getPath(), request.getRecursive()));
			return response.build();
		});
		options.on(CallbackType.FS_READDIR, request -> {
			var response = CallbackSessionFsServiceReaddirResponse.newBuilder();
			set(response::setError, () ->
					store.list(request.getPath()).forEach(entry -> response.addEntries(entry.name())));
			return response.build();
		});
		options.on(CallbackType.FS_READDIR_WITH_TYPES, request -> {
			var response = CallbackSessionFsServiceReaddirWithTypesResponse.newBuilder();
			set(response::setError, () -> store.list(request.getPath()).forEach(entry ->
					response.addEntries(SessionFsReaddirWithTypesEntry.newBuilder().setName(entry.name())
							.setEntryType(entry.isDirectory()
									? SessionFsReaddirWithTypesEntryType.SESSION_FS_READDIR_WITH_TYPES_ENTRY_TYPE_DIRECTORY
									: SessionFsReaddirWithTypesEntryType.SESSION_FS_READDIR_WITH_TYPES_ENTRY_TYPE_FILE))));
			return response.build();
		});
	}

	/** Runs an action, and sets its error if it fails. */
	private static void set(Consumer<SessionFsError> field, Action action) {
		SessionFsError error = attempt(action);
		if (error != null) {
			field.accept(error);
		}
	}

	private static byte[] utf8(String text) {
		return text.getBytes(StandardCharsets.UTF_8);
	}

	private static Timestamp time(Instant instant) {
		return Timestamp.newBuilder().setSeconds(instant.getEpochSecond()).setNanos(instant.getNano()).build();
	}
}
