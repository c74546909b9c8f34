import com.google.protobuf.Message;
import io.github.copilotgrpc.CallbackHandler;
import io.github.copilotgrpc.CallbackType;
import io.github.copilotgrpc.ConnectionEvent;
import io.github.copilotgrpc.Decision;
import io.github.copilotgrpc.HandlerOptions;
import io.github.copilotgrpc.HookType;
import io.github.copilotgrpc.Lifetime;
import io.github.copilotgrpc.OnInterruption;
import io.github.copilotgrpc.ParticipantOptions;
import io.github.copilotgrpc.PermissionRequest;
import io.github.copilotgrpc.SessionOptions;
import io.github.copilotgrpc.Tool;
import io.github.copilotgrpc.ToolException;
import io.github.copilotgrpc.ToolResult;
import io.github.copilotgrpc.bridge.v1.CommandAnswer;
import io.github.copilotgrpc.cli.v1.CallbackAutoModeSwitchServiceRequestResponse;
import io.github.copilotgrpc.cli.v1.CallbackAutoModeSwitchServiceRequestResponseResponse;
import io.github.copilotgrpc.cli.v1.CallbackGitHubTokenServiceGetTokenResponse;
import io.github.copilotgrpc.cli.v1.CallbackGitHubTokenServiceGetTokenResponseToken;
import io.github.copilotgrpc.cli.v1.CallbackProviderTokenServiceGetTokenResponse;
import io.github.copilotgrpc.cli.v1.HookPermissionDecision;
import io.github.copilotgrpc.cli.v1.HookPreToolUseOutput;
import io.github.copilotgrpc.cli.v1.ProviderConfigType;
import io.github.copilotgrpc.cli.v1.ProviderConfigWireApi;
import io.github.copilotgrpc.cli.v1.UIElicitationResponse;
import io.github.copilotgrpc.cli.v1.UIElicitationResponseAction;
import io.github.copilotgrpc.conformance.v1.Answer;
import io.github.copilotgrpc.conformance.v1.Behaviour;
import io.github.copilotgrpc.conformance.v1.Handlers;
import io.github.copilotgrpc.conformance.v1.Open;
import io.github.copilotgrpc.conformance.v1.PermissionRule;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** The functions of a case's program. */
final class CaseHandlers {
	private CaseHandlers() {}

	/** The arguments of every tool. */
	record Query(String city, Optional<Integer> days) {
		String json() {
			return "{\"city\":\"" + city + "\"" + days.map(number -> ",\"days\":" + number).orElse("") + "}";
		}
	}

	static Tool[] tools(CaseRunner runner, String session, List<io.github.copilotgrpc.conformance.v1.Tool> messages) {
		return messages.stream().map(message -> tool(runner, session, message)).toArray(Tool[]::new);
	}

	private static Tool tool(CaseRunner runner, String session, io.github.copilotgrpc.conformance.v1.Tool message) {
		String description = "Tells about a city.";
		Tool tool = message.getDeclaredOnly() ? Tool.declared(message.getName(), description, Query.class)
				: Tool.of(message.getName(), description, Query.class, query -> {
					var observation = runner.observe(session, "tool", message.getName(), query.json());
					runner.gate(observation, message.getBehaviour().getGate());
					return behave(message.getBehaviour(), query.city());
				});
		tool = message.getSkipPermission() ? tool.skipPermission() : tool;
		return message.getOwnedBySession() ? tool.ownedBySession() : tool;
	}

	private static Object behave(Behaviour behaviour, String city) throws ToolException {
		return switch (behaviour.getResultCase()) {
			case TEXT -> behaviour.getText();
			case TEMPLATE -> behaviour.getTemplate().replace("{city}", city);
			case JSON -> structured(behaviour.getJson());
			case FAILURE -> throw new ToolException(behaviour.getFailure());
			case REJECTED -> ToolResult.rejected(behaviour.getRejected());
			case BINARY -> ToolResult.binary(behaviour.getBinary().getData().toByteArray(),
					behaviour.getBinary().getMimeType(), behaviour.getBinary().getText());
			case EXCEPTION -> throw new IllegalStateException(behaviour.getException());
			case ABSTAIN -> ToolResult.abstain();
			case UNENCODABLE -> new Thread();
			case NOTHING, RESULT_NOT_SET -> null;
		};
	}

	/** The value of JSON in the language: the only one that the cases use. */
	private static Object structured(String json) {
		if (!json.equals("{\"rain\":true,\"hours\":[1,2]}")) {
			throw new UnsupportedOperationException(json);
		}
		Map<String, Object> value = new HashMap<>();
		value.put("rain", true);
		value.put("hours", List.of(1, 2));
		return value;
	}

	static SessionOptions sessionOptions(CaseRunner runner, Open step) {
		SessionOptions options = participant(new SessionOptions(), runner, step);
		if (step.hasStreaming()) {
			options.streaming(step.getStreaming());
		}
		if (step.getContinueInterruptedTurns()) {
			options.interruptedTurns(OnInterruption.CONTINUE);
		}
		step.getLabelsMap().forEach(options::label);
		if (step.getContinuePendingWork()) {
			options.continuePendingWork();
		}
		options.clear(step.getClearList().toArray(String[]::new));
		if (step.getCallbackTimeoutMs() > 0) {
			options.callbackTimeout(Duration.ofMillis(step.getCallbackTimeoutMs()));
		}
		if (step.getEndWithLastParticipant()) {
			options.lifetime(Lifetime.END_WITH_LAST_PARTICIPANT);
		}
		if (step.hasProvider()) {
			options.model(step.getProvider().getModel()).workingDirectory(step.getWorkingDirectory());
			options.configure(config -> {
				var provider = config.setSkipCustomInstructions(true).getProviderBuilder()
						.setProviderType(ProviderConfigType.PROVIDER_CONFIG_TYPE_OPENAI)
						.setWireApi(ProviderConfigWireApi.PROVIDER_CONFIG_WIRE_API_COMPLETIONS)
						.setBaseUrl(step.getProvider().getBaseUrl());
				if (step.getProvider().getTokenByCallback()) {
					provider.setHasBearerTokenProvider(true);
				} else {
					provider.setApiKey("offline");
				}
			});
		}
		return options;
	}

	static ParticipantOptions participantOptions(CaseRunner runner, Open step) {
		return participant(new ParticipantOptions(), runner, step);
	}

	private static <B extends HandlerOptions<B>> B participant(B options, CaseRunner runner, Open step) {
		String session = step.getSession();
		options.tools(tools(runner, session, step.getToolsList()));
		options.onConnection(event -> runner.observe(session, "connection", connection(event), ""));
		if (step.getGraceMs() > 0) {
			options.grace(Duration.ofMillis(step.getGraceMs()));
		}
		Handlers handlers = step.getHandlers();
		for (String command : step.getCommandsList()) {
			options.command(command, "a command",
					arguments -> answer(runner, session, "command", command, handlers.getCommand()));
		}
		if (handlers.hasCommand() && step.getCommandsCount() == 0) {
			options.on(CallbackType.COMMAND, request -> {
				answer(runner, session, "command", request.getCommandName(), handlers.getCommand());
				return CommandAnswer.getDefaultInstance();
			});
		}
		questions(options, runner, session, handlers);
		tokens(options, runner, session, handlers);
		hooks(options, runner, session, handlers);
		return options;
	}

	private static String connection(ConnectionEvent event) {
		if (event instanceof ConnectionEvent.Disconnected) {
			return "broken";
		}
		return event instanceof ConnectionEvent.Reconnected ? "restored" : "expired";
	}

	/** Observes, waits, and returns the text or throws the exception of an answer. */
	private static String answer(CaseRunner runner, String session, String kind, String name, Answer answer)
			throws Exception {
		runner.gate(runner.observe(session, kind, name, ""), answer.getGate());
		if (answer.getException()) {
			throw new IllegalStateException(answer.getText());
		}
		return answer.getText();
	}

	private static void questions(HandlerOptions<?> options, CaseRunner runner, String session, Handlers handlers) {
		if (handlers.hasPermission()) {
			options.onPermission(request -> {
				var observation = runner.observe(session, "permission", request.kind(), "");
				runner.gate(observation, handlers.getPermission().getGate());
				return decide(handlers.getPermission().getRulesList(), request);
			});
		}
		if (handlers.hasUserInput()) {
			options.onUserInput(request ->
					answer(runner, session, "user_input", request.getQuestion(), handlers.getUserInput()));
		}
		if (handlers.hasElicitation()) {
			String action = handlers.getElicitation().getAction();
			if (action.equals("cancel")) {
				options.on(CallbackType.ELICITATION, request -> {
					runner.observe(session, "elicitation", request.getMessage(), "");
					return UIElicitationResponse.newBuilder()
							.setAction(UIElicitationResponseAction.UI_ELICITATION_RESPONSE_ACTION_CANCEL).build();
				});
			} else {
				options.onElicitation(request -> {
					runner.observe(session, "elicitation", request.getMessage(), "");
					if (handlers.getElicitation().getUnencodable()) {
						return Optional.of(Map.of("name", new Object()));
					}
					Map<String, Object> content = new HashMap<>(handlers.getElicitation().getContentMap());
					return action.equals("accept") ? Optional.of(content) : Optional.empty();
				});
			}
		}
		if (handlers.hasExitPlanMode()) {
			options.onExitPlanMode(request -> {
				runner.observe(session, "exit_plan_mode", request.getSummary(), "");
				return handlers.getExitPlanMode().getApproved();
			});
		}
		if (handlers.hasAutoModeSwitch()) {
			options.on(CallbackType.AUTO_MODE_SWITCH, request -> {
				String text = answer(runner, session, "auto_mode_switch", "", handlers.getAutoModeSwitch());
				int number = List.of("", "yes", "yes-always", "no").indexOf(text);
				return CallbackAutoModeSwitchServiceRequestResponse.newBuilder()
						.setResponse(CallbackAutoModeSwitchServiceRequestResponseResponse.forNumber(number)).build();
			});
		}
		if (handlers.hasRaw()) {
			options.onRaw(handlers.getRaw().getMethod(), request -> {
				runner.observe(session, "raw", request.method(), request.paramsJson());
				// The only other result that the cases use.
				return handlers.getRaw().getUnencodable() ? Double.NaN : Map.of("ok", true);
			});
		}
	}

	private static void tokens(HandlerOptions<?> options, CaseRunner runner, String session, Handlers handlers) {
		if (handlers.hasProviderToken()) {
			options.on(CallbackType.PROVIDER_TOKEN, request -> CallbackProviderTokenServiceGetTokenResponse.newBuilder()
					.setToken(answer(runner, session, "provider_token", "", handlers.getProviderToken())).build());
		}
		if (handlers.hasGithubToken()) {
			options.on(CallbackType.GITHUB_TOKEN, request -> {
				String text = answer(runner, session, "github_token", "", handlers.getGithubToken());
				var token = CallbackGitHubTokenServiceGetTokenResponseToken.newBuilder().setAccessToken(text)
						.setExpiresIn(3600);
				return CallbackGitHubTokenServiceGetTokenResponse.newBuilder().setToken(token).build();
			});
		}
	}

	private static void hooks(HandlerOptions<?> options, CaseRunner runner, String session, Handlers handlers) {
		if (handlers.hasPreToolUse()) {
			options.hook(HookType.PRE_TOOL_USE, input -> {
				String name = "preToolUse " + input.getToolName();
				String decision = answer(runner, session, "hook", name, handlers.getPreToolUse());
				if (handlers.getPreToolUse().getUnencodable()) {
					throw new IllegalStateException("every output can be encoded");
				}
				return decision.isEmpty() ? null : HookPreToolUseOutput.newBuilder().setPermissionDecision(
						HookPermissionDecision.valueOf("HOOK_PERMISSION_DECISION_" + decision.toUpperCase())).build();
			});
		}
		if (handlers.getPostToolUse()) {
			options.hook(HookType.POST_TOOL_USE,
					silent(input -> runner.observe(session, "hook", "postToolUse " + input.getToolName(), "")));
		}
		if (handlers.getUserPromptSubmitted()) {
			options.hook(HookType.USER_PROMPT_SUBMITTED,
					silent(input -> runner.observe(session, "hook", "userPromptSubmitted " + input.getPrompt(), "")));
		}
	}

	private static <I, O extends Message> CallbackHandler<I, O> silent(java.util.function.Consumer<I> function) {
		return input -> {
			function.accept(input);
			return null;
		};
	}

	private static Decision decide(List<PermissionRule> rules, PermissionRequest request) {
		for (PermissionRule rule : rules) {
			if (!rule.getKind().isEmpty() && !rule.getKind().equals(request.kind())) {
				continue;
			}
			return switch (rule.getDecision()) {
				case "approve" -> Decision.approve();
				case "approve-for-session" -> Decision.approveForSession();
				case "reject" -> Decision.reject(rule.getFeedback());
				case "exception" -> throw new IllegalStateException(rule.getFeedback());
				default -> Decision.abstain();
			};
		}
		return Decision.abstain();
	}
}
