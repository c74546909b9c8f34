package io.github.copilotgrpc;

import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import io.github.copilotgrpc.bridge.v1.Answer;
import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.bridge.v1.CommandAnswer;
import io.github.copilotgrpc.bridge.v1.SamplingAnswer;
import io.github.copilotgrpc.cli.v1.CallbackAutoModeSwitchServiceRequestRequest;
import io.github.copilotgrpc.cli.v1.CallbackAutoModeSwitchServiceRequestResponse;
import io.github.copilotgrpc.cli.v1.CallbackCanvasActionServiceInvokeRequest;
import io.github.copilotgrpc.cli.v1.CallbackCanvasActionServiceInvokeResponse;
import io.github.copilotgrpc.cli.v1.CallbackCanvasServiceCloseRequest;
import io.github.copilotgrpc.cli.v1.CallbackCanvasServiceCloseResponse;
import io.github.copilotgrpc.cli.v1.CallbackCanvasServiceOpenRequest;
import io.github.copilotgrpc.cli.v1.CallbackCanvasServiceOpenResponse;
import io.github.copilotgrpc.cli.v1.CallbackExitPlanModeServiceRequestRequest;
import io.github.copilotgrpc.cli.v1.CallbackExitPlanModeServiceRequestResponse;
import io.github.copilotgrpc.cli.v1.CallbackExtensionLaunchProviderServiceResolveRequest;
import io.github.copilotgrpc.cli.v1.CallbackExtensionLaunchProviderServiceResolveResponse;
import io.github.copilotgrpc.cli.v1.CallbackFactoryServiceAbortRequest;
import io.github.copilotgrpc.cli.v1.CallbackFactoryServiceAbortResponse;
import io.github.copilotgrpc.cli.v1.CallbackFactoryServiceExecuteRequest;
import io.github.copilotgrpc.cli.v1.CallbackFactoryServiceExecuteResponse;
import io.github.copilotgrpc.cli.v1.CallbackGitHubTokenServiceGetTokenRequest;
import io.github.copilotgrpc.cli.v1.CallbackGitHubTokenServiceGetTokenResponse;
import io.github.copilotgrpc.cli.v1.CallbackInstallationsServiceConfirmRequest;
import io.github.copilotgrpc.cli.v1.CallbackInstallationsServiceConfirmResponse;
import io.github.copilotgrpc.cli.v1.CallbackLlmInferenceServiceHttpRequestChunkRequest;
import io.github.copilotgrpc.cli.v1.CallbackLlmInferenceServiceHttpRequestChunkResponse;
import io.github.copilotgrpc.cli.v1.CallbackLlmInferenceServiceHttpRequestStartRequest;
import io.github.copilotgrpc.cli.v1.CallbackLlmInferenceServiceHttpRequestStartResponse;
import io.github.copilotgrpc.cli.v1.CallbackProviderTokenServiceGetTokenRequest;
import io.github.copilotgrpc.cli.v1.CallbackProviderTokenServiceGetTokenResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceAppendFileRequest;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceAppendFileResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceExistsRequest;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceExistsResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceMkdirRequest;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceMkdirResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceReadFileBytesRequest;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceReadFileBytesResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceReadFileRequest;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceReadFileResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceReaddirRequest;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceReaddirResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceReaddirWithTypesRequest;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceReaddirWithTypesResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceRenameRequest;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceRenameResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceRmRequest;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceRmResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceSqliteExistsRequest;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceSqliteExistsResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceSqliteQueryRequest;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceSqliteQueryResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceSqliteTransactionRequest;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceSqliteTransactionResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceStatRequest;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceStatResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceWriteFileBytesRequest;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceWriteFileBytesResponse;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceWriteFileRequest;
import io.github.copilotgrpc.cli.v1.CallbackSessionFsServiceWriteFileResponse;
import io.github.copilotgrpc.cli.v1.CallbackSystemMessageServiceTransformRequest;
import io.github.copilotgrpc.cli.v1.CallbackSystemMessageServiceTransformResponse;
import io.github.copilotgrpc.cli.v1.CallbackTasksServiceCancelRequest;
import io.github.copilotgrpc.cli.v1.CallbackTasksServiceCancelResponse;
import io.github.copilotgrpc.cli.v1.CallbackUiThreadServiceRunRequest;
import io.github.copilotgrpc.cli.v1.CallbackUiThreadServiceRunResponse;
import io.github.copilotgrpc.cli.v1.CallbackUserInputServiceRequestRequest;
import io.github.copilotgrpc.cli.v1.CallbackUserInputServiceRequestResponse;
import io.github.copilotgrpc.cli.v1.CallbackWorkflowServiceAbortRequest;
import io.github.copilotgrpc.cli.v1.CallbackWorkflowServiceAbortResponse;
import io.github.copilotgrpc.cli.v1.CallbackWorkflowServiceExecuteRequest;
import io.github.copilotgrpc.cli.v1.CallbackWorkflowServiceExecuteResponse;
import io.github.copilotgrpc.cli.v1.CommandExecuteData;
import io.github.copilotgrpc.cli.v1.CommandQueuedData;
import io.github.copilotgrpc.cli.v1.ElicitationRequestedData;
import io.github.copilotgrpc.cli.v1.HookInvocation;
import io.github.copilotgrpc.cli.v1.HookOutput;
import io.github.copilotgrpc.cli.v1.InternalCallbackSkillProviderServiceListRequest;
import io.github.copilotgrpc.cli.v1.InternalCallbackSkillProviderServiceListResponse;
import io.github.copilotgrpc.cli.v1.InternalCallbackSkillProviderServiceReadRequest;
import io.github.copilotgrpc.cli.v1.InternalCallbackSkillProviderServiceReadResponse;
import io.github.copilotgrpc.cli.v1.McpHeadersHandlePendingHeadersRefreshRequest;
import io.github.copilotgrpc.cli.v1.McpHeadersRefreshRequiredData;
import io.github.copilotgrpc.cli.v1.McpOauthPendingRequestResponse;
import io.github.copilotgrpc.cli.v1.McpOauthRequiredData;
import io.github.copilotgrpc.cli.v1.QueuedCommandResult;
import io.github.copilotgrpc.cli.v1.SamplingRequestedData;
import io.github.copilotgrpc.cli.v1.SessionLimitsExhaustedRequestedData;
import io.github.copilotgrpc.cli.v1.UIElicitationResponse;
import io.github.copilotgrpc.cli.v1.UISessionLimitsExhaustedResponse;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;

/**
 * A kind of callback with the messages of its request and its answer. Tool calls, permissions and callbacks without
 * a type have options of their own.
 *
 * @param <Q> the request
 * @param <A> the answer
 */
public final class CallbackType<Q extends Message, A extends Message> {
	private static final Map<Integer, CallbackType<?, ?>> BY_FIELD = new HashMap<>();

	/** The agent asks the user a question. */
	public static final CallbackType<CallbackUserInputServiceRequestRequest, CallbackUserInputServiceRequestResponse>
			USER_INPUT = of("user_input");
	/** A tool or an MCP server requests a form or a page visit from the user. */
	public static final CallbackType<ElicitationRequestedData, UIElicitationResponse>
			ELICITATION = of("elicitation");
	/** The agent requests approval of its plan. */
	public static final CallbackType<CallbackExitPlanModeServiceRequestRequest,
			CallbackExitPlanModeServiceRequestResponse>
			EXIT_PLAN_MODE = of("exit_plan_mode");
	/** A rate limit is reached, and the agent requests to continue with an automatically selected model. */
	public static final CallbackType<CallbackAutoModeSwitchServiceRequestRequest,
			CallbackAutoModeSwitchServiceRequestResponse>
			AUTO_MODE_SWITCH = of("auto_mode_switch");
	/** A hook: the agent reached a point where callers may observe, change or refuse the action. */
	public static final CallbackType<HookInvocation, HookOutput> HOOK = of("hook");
	/** The CLI requests new text for sections of the system message. */
	public static final CallbackType<CallbackSystemMessageServiceTransformRequest,
			CallbackSystemMessageServiceTransformResponse>
			SYSTEM_MESSAGE_TRANSFORM = of("system_message_transform");
	/** A user invoked a command that a caller registered. */
	public static final CallbackType<CommandExecuteData, CommandAnswer> COMMAND = of("command");
	/** A queued command is due, and a caller may handle it. */
	public static final CallbackType<CommandQueuedData, QueuedCommandResult>
			QUEUED_COMMAND = of("queued_command");
	/** An MCP server requests a model's answer. */
	public static final CallbackType<SamplingRequestedData, SamplingAnswer> SAMPLING = of("sampling");
	/** An MCP server needs an OAuth token. */
	public static final CallbackType<McpOauthRequiredData, McpOauthPendingRequestResponse>
			MCP_OAUTH = of("mcp_oauth");
	/** An MCP server needs new headers. */
	public static final CallbackType<McpHeadersRefreshRequiredData, McpHeadersHandlePendingHeadersRefreshRequest>
			MCP_HEADERS = of("mcp_headers");
	/** The session has reached its limit; the answer may raise it. */
	public static final CallbackType<SessionLimitsExhaustedRequestedData, UISessionLimitsExhaustedResponse>
			SESSION_LIMITS = of("session_limits");
	/** A model provider needs a bearer token, before each of its requests. */
	public static final CallbackType<CallbackProviderTokenServiceGetTokenRequest,
			CallbackProviderTokenServiceGetTokenResponse>
			PROVIDER_TOKEN = of("provider_token");
	/** The CLI needs a GitHub token. */
	public static final CallbackType<CallbackGitHubTokenServiceGetTokenRequest,
			CallbackGitHubTokenServiceGetTokenResponse>
			GITHUB_TOKEN = of("github_token");
	/** The CLI opens a canvas of the caller. */
	public static final CallbackType<CallbackCanvasServiceOpenRequest, CallbackCanvasServiceOpenResponse>
			CANVAS_OPEN = of("canvas_open");
	/** The CLI closes a canvas. */
	public static final CallbackType<CallbackCanvasServiceCloseRequest, CallbackCanvasServiceCloseResponse>
			CANVAS_CLOSE = of("canvas_close");
	/** The CLI invokes an action of a canvas. */
	public static final CallbackType<CallbackCanvasActionServiceInvokeRequest,
			CallbackCanvasActionServiceInvokeResponse>
			CANVAS_ACTION = of("canvas_action");
	/** The CLI lists the skills of a caller. */
	public static final CallbackType<InternalCallbackSkillProviderServiceListRequest,
			InternalCallbackSkillProviderServiceListResponse>
			SKILL_LIST = of("skill_list");
	/** The CLI reads a skill of a caller. */
	public static final CallbackType<InternalCallbackSkillProviderServiceReadRequest,
			InternalCallbackSkillProviderServiceReadResponse>
			SKILL_READ = of("skill_read");
	/** The CLI runs a workflow of a caller (from 1.0.92). */
	public static final CallbackType<CallbackWorkflowServiceExecuteRequest, CallbackWorkflowServiceExecuteResponse>
			WORKFLOW_EXECUTE = of("workflow_execute");
	/** The CLI ends a workflow. */
	public static final CallbackType<CallbackWorkflowServiceAbortRequest, CallbackWorkflowServiceAbortResponse>
			WORKFLOW_ABORT = of("workflow_abort");
	/**
	 * The CLI runs an agent factory of a caller (until 1.0.82).
	 *
	 * @deprecated newer versions of the CLI have workflows instead
	 */
	@Deprecated
	public static final CallbackType<CallbackFactoryServiceExecuteRequest, CallbackFactoryServiceExecuteResponse>
			FACTORY_EXECUTE = of("factory_execute");
	/**
	 * The CLI ends an agent factory.
	 *
	 * @deprecated newer versions of the CLI have workflows instead
	 */
	@Deprecated
	public static final CallbackType<CallbackFactoryServiceAbortRequest, CallbackFactoryServiceAbortResponse>
			FACTORY_ABORT = of("factory_abort");
	/** The CLI cancels a task of a caller. */
	public static final CallbackType<CallbackTasksServiceCancelRequest, CallbackTasksServiceCancelResponse>
			TASK_CANCEL = of("task_cancel");
	/** An installation needs a user's consent. */
	public static final CallbackType<CallbackInstallationsServiceConfirmRequest,
			CallbackInstallationsServiceConfirmResponse>
			INSTALLATION_CONFIRM = of("installation_confirm");
	/** The CLI starts an extension, and a caller provides the command. */
	public static final CallbackType<CallbackExtensionLaunchProviderServiceResolveRequest,
			CallbackExtensionLaunchProviderServiceResolveResponse>
			EXTENSION_LAUNCH = of("extension_launch");
	/** The CLI runs a function on the caller's user-interface thread. */
	public static final CallbackType<CallbackUiThreadServiceRunRequest, CallbackUiThreadServiceRunResponse>
			UI_THREAD = of("ui_thread");
	/** Reads a text file of the session's file system. */
	public static final CallbackType<CallbackSessionFsServiceReadFileRequest, CallbackSessionFsServiceReadFileResponse>
			FS_READ_FILE = of("fs_read_file");
	/** Reads a file as bytes. */
	public static final CallbackType<CallbackSessionFsServiceReadFileBytesRequest,
			CallbackSessionFsServiceReadFileBytesResponse>
			FS_READ_FILE_BYTES = of("fs_read_file_bytes");
	/** Writes a text file. */
	public static final CallbackType<CallbackSessionFsServiceWriteFileRequest,
			CallbackSessionFsServiceWriteFileResponse>
			FS_WRITE_FILE = of("fs_write_file");
	/** Writes a file as bytes. */
	public static final CallbackType<CallbackSessionFsServiceWriteFileBytesRequest,
			CallbackSessionFsServiceWriteFileBytesResponse>
			FS_WRITE_FILE_BYTES = of("fs_write_file_bytes");
	/** Appends text to a file. */
	public static final CallbackType<CallbackSessionFsServiceAppendFileRequest,
			CallbackSessionFsServiceAppendFileResponse>
			FS_APPEND_FILE = of("fs_append_file");
	/** Checks whether a path exists. */
	public static final CallbackType<CallbackSessionFsServiceExistsRequest, CallbackSessionFsServiceExistsResponse>
			FS_EXISTS = of("fs_exists");
	/** Returns the attributes of a path. */
	public static final CallbackType<CallbackSessionFsServiceStatRequest, CallbackSessionFsServiceStatResponse>
			FS_STAT = of("fs_stat");
	/** Creates a directory. */
	public static final CallbackType<CallbackSessionFsServiceMkdirRequest, CallbackSessionFsServiceMkdirResponse>
			FS_MKDIR = of("fs_mkdir");
	/** Lists the names in a directory. */
	public static final CallbackType<CallbackSessionFsServiceReaddirRequest, CallbackSessionFsServiceReaddirResponse>
			FS_READDIR = of("fs_readdir");
	/** Lists a directory with the kind of each entry. */
	public static final CallbackType<CallbackSessionFsServiceReaddirWithTypesRequest,
			CallbackSessionFsServiceReaddirWithTypesResponse>
			FS_READDIR_WITH_TYPES = of("fs_readdir_with_types");
	/** Removes a path. */
	public static final CallbackType<CallbackSessionFsServiceRmRequest, CallbackSessionFsServiceRmResponse>
			FS_RM = of("fs_rm");
	/** Moves a path. */
	public static final CallbackType<CallbackSessionFsServiceRenameRequest, CallbackSessionFsServiceRenameResponse>
			FS_RENAME = of("fs_rename");
	/** Runs a statement on a SQLite database of the session. */
	public static final CallbackType<CallbackSessionFsServiceSqliteQueryRequest,
			CallbackSessionFsServiceSqliteQueryResponse>
			FS_SQLITE_QUERY = of("fs_sqlite_query");
	/** Runs several statements on a SQLite database in a transaction. */
	public static final CallbackType<CallbackSessionFsServiceSqliteTransactionRequest,
			CallbackSessionFsServiceSqliteTransactionResponse>
			FS_SQLITE_TRANSACTION = of("fs_sqlite_transaction");
	/** Checks whether a SQLite database exists. */
	public static final CallbackType<CallbackSessionFsServiceSqliteExistsRequest,
			CallbackSessionFsServiceSqliteExistsResponse>
			FS_SQLITE_EXISTS = of("fs_sqlite_exists");
	/** Starts a model request that a caller answers. */
	public static final CallbackType<CallbackLlmInferenceServiceHttpRequestStartRequest,
			CallbackLlmInferenceServiceHttpRequestStartResponse>
			MODEL_REQUEST_START = of("model_request_start");
	/** The next piece of a model request's body. */
	public static final CallbackType<CallbackLlmInferenceServiceHttpRequestChunkRequest,
			CallbackLlmInferenceServiceHttpRequestChunkResponse>
			MODEL_REQUEST_CHUNK = of("model_request_chunk");

	private final FieldDescriptor requestField;
	private final FieldDescriptor answerField;
	private final CallbackKind kind;

	private CallbackType(FieldDescriptor requestField, FieldDescriptor answerField, CallbackKind kind) {
		this.requestField = requestField;
		this.answerField = answerField;
		this.kind = kind;
	}

	private static <Q extends Message, A extends Message> CallbackType<Q, A> of(String name) {
		FieldDescriptor request = Callback.getDescriptor().findFieldByName(name);
		CallbackKind kind = CallbackKind.valueOf(name.toUpperCase(Locale.ROOT));
		CallbackType<Q, A> type = new CallbackType<>(request, Answer.getDescriptor().findFieldByName(name), kind);
		BY_FIELD.put(request.getNumber(), type);
		return type;
	}

	/** The type of a callback; null if it has none. */
	static CallbackType<?, ?> of(Callback callback) {
		return BY_FIELD.get(callback.getRequestCase().getNumber());
	}

	/**
	 * Returns the kind.
	 *
	 * @return the kind
	 */
	public CallbackKind kind() {
		return kind;
	}

	Message request(Callback callback) {
		return (Message) callback.getField(requestField);
	}

	/** @throws IllegalArgumentException the result is not this type's answer */
	Answer answer(Message result) {
		return Answer.newBuilder().setField(answerField, result).build();
	}

	/** Returns the name of the kind, such as {@code user_input}. */
	@Override
	public String toString() {
		return requestField.getName();
	}
}
