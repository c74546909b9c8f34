package io.github.copilotgrpc;

import java.util.Locale;

/** The kinds of callbacks: what the CLI asks its callers. {@link CallbackType} has the messages of each. */
public enum CallbackKind {
	/** The agent calls a tool of the session or of a participant. */
	TOOL_CALL,
	/** The agent needs permission for an action. */
	PERMISSION,
	/** A callback without a kind in this version of the server. */
	RAW,
	/** The agent asks the user a question. */
	USER_INPUT,
	/** A tool or an MCP server requests a form or a page visit from the user. */
	ELICITATION,
	/** The agent requests approval of its plan. */
	EXIT_PLAN_MODE,
	/** A rate limit is reached, and the agent requests to continue with an automatically selected model. */
	AUTO_MODE_SWITCH,
	/** A hook: the agent reached a point where callers may observe, change or refuse the action. */
	HOOK,
	/** The CLI requests new text for sections of the system message. */
	SYSTEM_MESSAGE_TRANSFORM,
	/** A user invoked a command that a caller registered. */
	COMMAND,
	/** A queued command is due, and a caller may handle it. */
	QUEUED_COMMAND,
	/** An MCP server requests a model's answer. */
	SAMPLING,
	/** An MCP server needs an OAuth token. */
	MCP_OAUTH,
	/** An MCP server needs new headers. */
	MCP_HEADERS,
	/** The session has reached its limit; the answer may raise it. */
	SESSION_LIMITS,
	/** A model provider needs a bearer token, before each of its requests. */
	PROVIDER_TOKEN,
	/** The CLI needs a GitHub token. */
	GITHUB_TOKEN,
	/** The CLI opens a canvas of the caller. */
	CANVAS_OPEN,
	/** The CLI closes a canvas. */
	CANVAS_CLOSE,
	/** The CLI invokes an action of a canvas. */
	CANVAS_ACTION,
	/** The CLI lists the skills of a caller. */
	SKILL_LIST,
	/** The CLI reads a skill of a caller. */
	SKILL_READ,
	/** The CLI runs a workflow of a caller (from 1.0.92). */
	WORKFLOW_EXECUTE,
	/** The CLI ends a workflow. */
	WORKFLOW_ABORT,
	/** The CLI runs an agent factory of a caller (until 1.0.82). */
	FACTORY_EXECUTE,
	/** The CLI ends an agent factory. */
	FACTORY_ABORT,
	/** The CLI cancels a task of a caller. */
	TASK_CANCEL,
	/** An installation needs a user's consent. */
	INSTALLATION_CONFIRM,
	/** The CLI starts an extension, and a caller provides the command. */
	EXTENSION_LAUNCH,
	/** The CLI runs a function on the caller's user-interface thread. */
	UI_THREAD,
	/** Reads a text file of the session's file system. */
	FS_READ_FILE,
	/** Reads a file as bytes. */
	FS_READ_FILE_BYTES,
	/** Writes a text file. */
	FS_WRITE_FILE,
	/** Writes a file as bytes. */
	FS_WRITE_FILE_BYTES,
	/** Appends text to a file. */
	FS_APPEND_FILE,
	/** Checks whether a path exists. */
	FS_EXISTS,
	/** Returns the attributes of a path. */
	FS_STAT,
	/** Creates a directory. */
	FS_MKDIR,
	/** Lists the names in a directory. */
	FS_READDIR,
	/** Lists a directory with the kind of each entry. */
	FS_READDIR_WITH_TYPES,
	/** Removes a path. */
	FS_RM,
	/** Moves a path. */
	FS_RENAME,
	/** Runs a statement on a SQLite database of the session. */
	FS_SQLITE_QUERY,
	/** Runs several statements on a SQLite database in a transaction. */
	FS_SQLITE_TRANSACTION,
	/** Checks whether a SQLite database exists. */
	FS_SQLITE_EXISTS,
	/** Starts a model request that a caller answers. */
	MODEL_REQUEST_START,
	/** The next piece of a model request's body. */
	MODEL_REQUEST_CHUNK,
	/** A kind that is newer than this library. */
	UNKNOWN;

	private static final String PREFIX = "CALLBACK_KIND_";

	static CallbackKind of(io.github.copilotgrpc.bridge.v1.CallbackKind kind) {
		return switch (kind) {
			case CALLBACK_KIND_UNSPECIFIED, UNRECOGNIZED -> UNKNOWN;
			default -> valueOf(kind.name().substring(PREFIX.length()));
		};
	}

	/** @throws IllegalArgumentException this is UNKNOWN */
	io.github.copilotgrpc.bridge.v1.CallbackKind proto() {
		return io.github.copilotgrpc.bridge.v1.CallbackKind.valueOf(PREFIX + name());
	}

	/** Returns the name of the request in the API, such as {@code tool_call}. */
	@Override
	public String toString() {
		return name().toLowerCase(Locale.ROOT);
	}
}
