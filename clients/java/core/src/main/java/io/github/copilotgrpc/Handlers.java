package io.github.copilotgrpc;

import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.OneofDescriptor;
import com.google.protobuf.Message;
import io.github.copilotgrpc.bridge.v1.Answer;
import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.bridge.v1.CallbackKind;
import io.github.copilotgrpc.bridge.v1.ToolAnswer;
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
		set.byKind().keySet().stream().map(CallbackType::kind).sorted().forEach(announced::addKinds);
		if (!set.hooks().isEmpty() && !set.byKind().containsKey(CallbackType.HOOK)) {
			announced.addKinds(CallbackKind.CALLBACK_KIND_HOOK);
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
			task.cancel(true);
			answer.cancel(true);
		}
	}

	/** Starts to answer a callback. */
	Running start(Callback callback) {
		Running running = new Running();
		running.task = new FutureTask<>(() -> {
			Traces.run(callback.getTraceparent(), callback.getTracestate(), () -> {
				answer(callback).whenComplete((answer, error) -> running.answer.complete(
						error == null ? checked(answer) : failed(callback, Errors.unwrap(error))));
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
			Log.error("the executor of handlers is full", e);
			running.ended.complete(null);
			running.answer.complete(Answers.error("the program has no thread for the handler"));
		}
		return running;
	}

	/** The answer to a callback; an asynchronous tool completes it later. */
	private CompletableFuture<Answer> answer(Callback callback) {
		try {
			if (callback.hasToolCall()) {
				return answerTool(callback);
			}
			return CompletableFuture.completedFuture(dispatch(callback));
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

	private CompletableFuture<Answer> answerTool(Callback callback) {
		ExternalToolRequestedData request = callback.getToolCall();
		Tool tool = tools.get(request.getToolName());
		if (tool == null || !tool.hasFunction()) {
			return CompletableFuture.completedFuture(Answers.abstain());
		}
		CompletionStage<?> result;
		try {
			Object value = tool.call(request.getArgumentsJson(), ToolCall.of(callback));
			result = value instanceof CompletionStage<?> later ? later : CompletableFuture.completedFuture(value);
		} catch (Throwable e) { // also errors: the turn must continue
			result = CompletableFuture.failedFuture(e);
		}
		return result.toCompletableFuture().<Answer>handle((value, error) -> {
			if (error == null) {
				try {
					return Answers.tool(value);
				} catch (RuntimeException | StackOverflowError e) { // JSON cannot hold the result
					return toolFailed(callback, e);
				}
			}
			return toolFailed(callback, Errors.unwrap(error));
		});
	}

	private static Answer toolFailed(Callback callback, Throwable error) {
		if (error instanceof ToolException) {
			return Answers.tool(ToolResult.failure(error.getMessage()));
		}
		Log.error("tool " + callback.getToolCall().getToolName() + " failed, callback " + callback.getCallbackId(), error);
		return Answer.newBuilder().setTool(ToolAnswer.newBuilder().setException(error.toString())).build();
	}

	private static Answer failed(Callback callback, Throwable error) {
		if (error instanceof HandlerException) {
			return Answers.error(String.valueOf(error.getMessage()));
		}
		Log.error("handler of callback " + callback.getCallbackId() + " failed", error);
		return Answers.error("the handler failed with " + error.getClass().getSimpleName());
	}

	private static Answer checked(Answer answer) {
		int size = answer.getSerializedSize();
		return size <= MAX_ANSWER
				? answer : Answers.error("the answer has " + size + " bytes, more than " + MAX_ANSWER);
	}
}
