package io.github.copilotgrpc;

import com.google.protobuf.Message;
import io.github.copilotgrpc.bridge.v1.AttachStart;
import io.github.copilotgrpc.bridge.v1.CommandAnswer;
import io.github.copilotgrpc.cli.v1.CallbackUserInputServiceRequestRequest;
import io.github.copilotgrpc.cli.v1.CallbackUserInputServiceRequestResponse;
import io.github.copilotgrpc.cli.v1.CommandDeclaration;
import io.github.copilotgrpc.cli.v1.ElicitationRequestedData;
import io.github.copilotgrpc.cli.v1.CallbackExitPlanModeServiceRequestRequest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * Tools and handlers of a participant: the part that {@link SessionOptions} and {@link ParticipantOptions} have in
 * common. Not safe for concurrent use.
 *
 * @param <B> the options themselves
 */
public abstract sealed class HandlerOptions<B extends HandlerOptions<B>> permits SessionOptions, ParticipantOptions {
	private final List<Tool> tools = new ArrayList<>();
	private final Map<CallbackType<?, ?>, CallbackHandler<?, ?>> byKind = new LinkedHashMap<>();
	private final Map<HookType<?, ?>, CallbackHandler<?, ?>> hooks = new LinkedHashMap<>();
	private final Map<String, CallbackHandler<RawRequest, ?>> raw = new LinkedHashMap<>();
	private final List<CommandDeclaration> commands = new ArrayList<>();
	private String name = "";
	private PermissionHandler permission;
	private int maxConcurrentTools = 16;
	private Duration grace;
	private SessionFiles files;
	private ModelTransport models;
	private Consumer<ConnectionEvent> connectionListener;
	private Consumer<AttachStart.Builder> customizer = start -> { };

	HandlerOptions() {}

	abstract B self();

	/**
	 * Adds tools.
	 *
	 * @param more the tools
	 * @return these options
	 */
	public B tools(Tool... more) {
		tools.addAll(List.of(more));
		return self();
	}

	/**
	 * Decides about permission requests: the first rule that does not abstain. Without this option all requests are
	 * denied, unless another participant decides.
	 *
	 * @param rules the rules; see {@link Permissions}
	 * @return these options
	 */
	public B onPermission(PermissionHandler... rules) {
		permission = rules.length == 1 ? rules[0] : Permissions.firstOf(rules);
		return self();
	}

	/**
	 * Answers the agent's questions.
	 *
	 * @param handler returns the user's answer
	 * @return these options
	 */
	public B onUserInput(CallbackHandler<CallbackUserInputServiceRequestRequest, String> handler) {
		return on(CallbackType.USER_INPUT, request -> {
			String answer = handler.handle(request);
			return answer == null ? null : CallbackUserInputServiceRequestResponse.newBuilder()
					.setAnswer(answer).setWasFreeform(!request.getChoicesList().contains(answer)).build();
		});
	}

	/**
	 * Fills in forms.
	 *
	 * @param handler returns the form's content: strings, numbers, booleans and lists of strings; an empty
	 *     {@link java.util.Optional} declines
	 * @return these options
	 */
	public B onElicitation(
			CallbackHandler<ElicitationRequestedData, java.util.Optional<Map<String, Object>>> handler) {
		return on(CallbackType.ELICITATION, request -> {
			var content = handler.handle(request);
			return content == null ? null : ShortAnswers.elicitation(content);
		});
	}

	/**
	 * Decides about plans.
	 *
	 * @param handler true approves the recommended action
	 * @return these options
	 */
	public B onExitPlanMode(CallbackHandler<CallbackExitPlanModeServiceRequestRequest, Boolean> handler) {
		return on(CallbackType.EXIT_PLAN_MODE, request -> {
			Boolean approved = handler.handle(request);
			return approved == null ? null : ShortAnswers.exitPlanMode(request, approved);
		});
	}

	/**
	 * Executes a slash command of this participant.
	 *
	 * @param command the command's name
	 * @param description description for users
	 * @param handler receives the arguments; the text of an exception is the command's error
	 * @return these options
	 */
	public B command(String command, String description, CommandHandler handler) {
		commands.add(CommandDeclaration.newBuilder().setName(command).setDescription(description).build());
		@SuppressWarnings("unchecked") // only this method and `on` write the entry, with handlers of this type
		var before = (CallbackHandler<io.github.copilotgrpc.cli.v1.CommandExecuteData, CommandAnswer>)
				byKind.get(CallbackType.COMMAND);
		return on(CallbackType.COMMAND, request -> {
			if (!request.getCommandName().equals(command)) {
				return before == null ? null : before.handle(request);
			}
			handler.run(request.getArgs());
			return CommandAnswer.getDefaultInstance();
		});
	}

	/**
	 * Answers any other kind of callback.
	 *
	 * @param <Q> the request
	 * @param <A> the answer
	 * @param type the kind
	 * @param handler the handler
	 * @return these options
	 */
	public <Q extends Message, A extends Message> B on(
			CallbackType<Q, A> type, CallbackHandler<? super Q, ? extends A> handler) {
		byKind.put(type, Objects.requireNonNull(handler));
		return self();
	}

	/**
	 * Observes or changes what the agent does.
	 *
	 * @param <I> the hook's input
	 * @param <O> the hook's output
	 * @param type the hook
	 * @param handler returns the output; null for no opinion
	 * @return these options
	 */
	public <I extends Message, O extends Message> B hook(
			HookType<I, O> type, CallbackHandler<? super I, ? extends O> handler) {
		hooks.put(type, Objects.requireNonNull(handler));
		return self();
	}

	/**
	 * Answers a callback that is newer than this library.
	 *
	 * @param method JSON-RPC method or event type
	 * @param handler returns a value that JSON can hold
	 * @return these options
	 */
	public B onRaw(String method, CallbackHandler<RawRequest, ?> handler) {
		raw.put(method, Objects.requireNonNull(handler));
		return self();
	}

	/**
	 * Stores the session's files in this program. The server's policy must allow it.
	 *
	 * @param provider the files
	 * @return these options
	 */
	public B sessionFiles(SessionFiles provider) {
		files = Objects.requireNonNull(provider);
		provider.addHandlers(this);
		return self();
	}

	/**
	 * Answers the session's model requests in this program. The server's policy must allow it.
	 *
	 * @param transport answers the requests
	 * @return these options
	 */
	public B modelTransport(ModelTransport transport) {
		models = Objects.requireNonNull(transport);
		return self();
	}

	/**
	 * Sets the name for users and logs. Default: the client's name.
	 *
	 * @param participantName the name, at most 128 characters
	 * @return these options
	 */
	public B name(String participantName) {
		name = Objects.requireNonNull(participantName);
		return self();
	}

	/**
	 * Sets how many tool calls run at once. Default: 16.
	 *
	 * @param maximum 1 or more
	 * @return these options
	 */
	public B maxConcurrentTools(int maximum) {
		if (maximum < 1) {
			throw new IllegalArgumentException("maxConcurrentTools: " + maximum + " is less than 1");
		}
		maxConcurrentTools = maximum;
		return self();
	}

	/**
	 * Sets the time for which the server waits for this participant after a broken connection. Default: the
	 * server's, 30 seconds.
	 *
	 * @param time up to one hour
	 * @return these options
	 */
	public B grace(Duration time) {
		grace = Objects.requireNonNull(time);
		return self();
	}

	/**
	 * Observes the connection. The listener is called in order, in threads of the client's executor.
	 *
	 * @param listener the listener
	 * @return these options
	 */
	public B onConnection(Consumer<ConnectionEvent> listener) {
		connectionListener = Objects.requireNonNull(listener);
		return self();
	}

	/**
	 * Changes the start frame of every stream, for fields without an option, such as canvases.
	 *
	 * @param change changes the frame
	 * @return these options
	 */
	public B customizeStart(Consumer<AttachStart.Builder> change) {
		customizer = Objects.requireNonNull(change);
		return self();
	}

	boolean hasFiles() {
		return files != null;
	}

	/** The tools and handlers, as they are now. */
	HandlerSet handlerSet() {
		return new HandlerSet(
				name, Map.copyOf(Tool.byName(tools)), permission, new LinkedHashMap<>(byKind),
				Map.copyOf(hooks), Map.copyOf(raw), List.copyOf(commands), maxConcurrentTools, grace, files, models,
				connectionListener, customizer);
	}
}
