package io.github.copilotgrpc;

import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.OneofDescriptor;
import com.google.protobuf.Message;
import io.github.copilotgrpc.bridge.v1.Answer;
import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.cli.v1.ExternalToolRequestedData;
import io.github.copilotgrpc.cli.v1.HookInvocation;
import io.github.copilotgrpc.cli.v1.HookOutput;
import io.github.copilotgrpc.cli.v1.ToolDefinition;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;
import java.util.concurrent.RejectedExecutionException;

/** A participant's tools and handlers, and the answers that they give. */
final class Handlers {
	/** An answer that exceeds the server's limit for messages, 16 MiB by default, would end the stream. */
	private static final int MAX_ANSWER = 15 << 20;
	private static final OneofDescriptor HOOK_DATA = HookInvocation.getDescriptor().getOneofs().get(0);

	private final Executor executor;
	private final HandlerSet set;
	private volatile Map<String, Tool> tools;

	Handlers(Executor executor, HandlerSet set) {
		this.executor = executor;
		this.set = set;
		this.tools = set.tools();
	}

	Map<String, Tool> tools() {
		return tools;
	}

	void setTools(Map<String, Tool> changed) {
		tools = Map.copyOf(changed);
	}

	/** The definitions of the participant's tools, or of the session's, in a stable order. */
	List<ToolDefinition> declaredTools(boolean ownedBySession) {
		return tools.values().stream().filter(tool -> tool.isOwnedBySession() == ownedBySession)
				.sorted(Comparator.comparing(Tool::name)).map(Tool::definition).toList();
	}

	/** The handlers for the start frame. */
	io.github.copilotgrpc.bridge.v1.Handlers announced() {
		var announced = io.github.copilotgrpc.bridge.v1.Handlers.newBuilder().setPermission(set.permission() != null);
		set.byKind().keySet().stream().map(CallbackType::kind).sorted().map(CallbackKind::proto).forEach(announced::addKinds);
		if (!set.hooks().isEmpty() && !set.byKind().containsKey(CallbackType.HOOK)) {
			announced.addKinds(CallbackKind.HOOK.proto());
			set.hooks().keySet().stream().map(HookType::name).sorted().forEach(announced::addHookTypes);
		}
		set.raw().keySet().stream().sorted().forEach(announced::addMethods);
		return announced.build();
	}

	/**
	 * Whether this participant answers a callback.
	 *
	 * @param offered the server asks this participant
	 */
	boolean takes(Callback callback, boolean offered) {
		switch (callback.getRequestCase()) {
			case TOOL_CALL:
				Tool tool = tools.get(callback.getToolCall().getToolName());
				if (tool == null) {
					return offered; // the tool was just removed: the answer abstains
				}
				return tool.hasFunction() && (offered || tool.isOwnedBySession());
			case PERMISSION:
				return offered && set.permission() != null;
			case RAW:
				return offered && set.raw().containsKey(callback.getRaw().getMethod());
			case HOOK:
				return offered && (hookType(callback.getHook()) != null || set.byKind().containsKey(CallbackType.HOOK));
			case REQUEST_NOT_SET:
				return false;
			default:
				CallbackType<?, ?> type = CallbackType.of(callback);
				return offered && type != null && set.byKind().containsKey(type);
		}
	}

	/** A handler that runs. */
	static final class Running {
		private final CompletableFuture<Answer> answer = new CompletableFuture<>();
		private final CompletableFuture<Void> ended = new CompletableFuture<>();
		private FutureTask<Void> task;

		/** Completes with the answer; never fails. */
		CompletableFuture<Answer> answer() {
			return answer;
		}

		/** Completes when the handler's thread is free. */
		CompletableFuture<Void> ended() {
			return ended;
		}

		/** Interrupts the handler. Its answer is no longer needed. */
		void cancel() {
			answer.cancel(true); // first: what the handler does from now on is no failure
			task.cancel(true);
		}
	}

	/** Starts to answer a callback. */
	Running start(Callback callback) {
		Running running = new Running();
		running.task = new FutureTask<>(() -> {
			Traces.run(callback.getTraceparent(), callback.getTracestate(), () -> {
				answer(callback).whenComplete((answer, error) -> {
					if (!running.answer.isDone()) { // else it is no longer needed
						running.answer.complete(
								error == null ? checked(callback, answer) : failed(callback, Errors.unwrap(error)));
					}
				});
				return null;
			});
			return null;
		});
		Runnable whole = () -> {
			try {
				running.task.run();
			} finally {
				running.ended.complete(null);
			}
		};
		try {
			executor.execute(whole);
		} catch (RejectedExecutionException e) {
			running.ended.complete(null);
			running.answer.complete(failed(callback, e));
		}
		return running;
	}

	/** The answer to a callback; an asynchronous tool completes it later. */
	private CompletableFuture<Answer> answer(Callback callback) {
		try {
			return callback.hasToolCall()
					? answerTool(callback) : CompletableFuture.completedFuture(dispatch(callback));
		} catch (Throwable e) { // also errors: the turn must continue
			return CompletableFuture.failedFuture(e);
		}
	}

	private Answer dispatch(Callback callback) throws Exception {
		switch (callback.getRequestCase()) {
			case PERMISSION:
				Decision decision = set.permission().decide(PermissionRequest.of(callback));
				return decision == null ? Answers.abstain() : decision.toAnswer();
			case RAW:
				return RawRequest.answer(callback, set.raw().get(callback.getRaw().getMethod()));
			case HOOK:
				HookType<?, ?> type = hookType(callback.getHook());
				if (type != null) {
					return answerHook(type, callback.getHook());
				}
				return answerKind(CallbackType.HOOK, callback);
			default:
				return answerKind(CallbackType.of(callback), callback);
		}
	}

	private Answer answerKind(CallbackType<?, ?> type, Callback callback) throws Exception {
		@SuppressWarnings("unchecked") // the set pairs types with handlers of their messages
		var handler = (CallbackHandler<Message, Message>) set.byKind().get(type);
		Message result = handler.handle(type.request(callback));
		return result == null ? Answers.abstain() : type.answer(result);
	}

	private HookType<?, ?> hookType(HookInvocation hook) {
		FieldDescriptor field = hook.getOneofFieldDescriptor(HOOK_DATA);
		return field == null ? null : set.hooks().keySet().stream()
				.filter(type -> type.field().equals(field.getName())).findAny().orElse(null);
	}

	private Answer answerHook(HookType<?, ?> type, HookInvocation hook) throws Exception {
		@SuppressWarnings("unchecked") // the set pairs types with handlers of their messages
		var handler = (CallbackHandler<Message, Message>) set.hooks().get(type);
		Message result = handler.handle((Message) hook.getField(hook.getOneofFieldDescriptor(HOOK_DATA)));
		HookOutput.Builder output = HookOutput.newBuilder();
		if (result != null) {
			output.setField(HookOutput.getDescriptor().findFieldByName(type.field()), result);
		}
		return Answer.newBuilder().setHook(output).build();
	}

	private CompletableFuture<Answer> answerTool(Callback callback) throws Exception {
		ExternalToolRequestedData request = callback.getToolCall();
		Tool tool = tools.get(request.getToolName());
		if (tool == null || !tool.hasFunction()) {
			return CompletableFuture.completedFuture(Answers.abstain());
		}
		Object value = tool.call(request.getArgumentsJson(), ToolCall.of(callback));
		return value instanceof CompletionStage<?> later
				? later.toCompletableFuture().thenApply(result -> encoded(callback, result))
				: CompletableFuture.completedFuture(encoded(callback, value));
	}

	private static Answer encoded(Callback callback, Object result) {
		try {
			return Answers.tool(result);
		} catch (RuntimeException | StackOverflowError e) {
			Log.failed(describe(callback), callback.getSessionId(), callback.getCallbackId(), e, true);
			return Answers.tool(ToolResult.failure("The tool ran, but its result cannot be encoded as JSON.", e));
		}
	}

	/**
	 * The answer in place of a handler's that failed. The model reads only a text that the program meant for it; the user of
	 * a command reads every text.
	 */
	private static Answer failed(Callback callback, Throwable error) {
		boolean isTool = callback.hasToolCall();
		boolean isMeant = isTool ? error instanceof ToolException : error instanceof HandlerException;
		Log.failed(describe(callback), callback.getSessionId(), callback.getCallbackId(), error, isMeant);
		if (isTool) {
			return Answers.tool(isMeant ? ToolResult.failure(error.getMessage()) : ToolResult.failure("", error));
		}
		return Answers.error(isMeant || callback.hasCommand() ? String.valueOf(error.getMessage()) : "The handler failed.");
	}

	/** The code that answers a callback, for the log. */
	private static String describe(Callback callback) {
		return switch (callback.getRequestCase()) {
			case TOOL_CALL -> "tool " + callback.getToolCall().getToolName();
			case COMMAND -> "command " + callback.getCommand().getCommandName();
			case HOOK -> "hook " + callback.getHook().getHookType();
			case RAW -> "handler of " + callback.getRaw().getMethod();
			default -> "handler of " + CallbackKind.of(callback.getKind());
		};
	}

	private static Answer checked(Callback callback, Answer answer) {
		int size = answer.getSerializedSize();
		if (size <= MAX_ANSWER) {
			return answer;
		}
		String problem = "the answer has " + size + " bytes, more than " + MAX_ANSWER;
		Log.warn(describe(callback) + " of session " + callback.getSessionId(), problem);
		return Answers.error(problem);
	}
}
