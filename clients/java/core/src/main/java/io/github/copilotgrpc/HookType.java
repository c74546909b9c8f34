package io.github.copilotgrpc;

import com.google.protobuf.Message;
import io.github.copilotgrpc.cli.v1.HookAgentStopInput;
import io.github.copilotgrpc.cli.v1.HookAgentStopOutput;
import io.github.copilotgrpc.cli.v1.HookErrorOccurredInput;
import io.github.copilotgrpc.cli.v1.HookErrorOccurredOutput;
import io.github.copilotgrpc.cli.v1.HookPostToolUseFailureInput;
import io.github.copilotgrpc.cli.v1.HookPostToolUseFailureOutput;
import io.github.copilotgrpc.cli.v1.HookPostToolUseInput;
import io.github.copilotgrpc.cli.v1.HookPostToolUseOutput;
import io.github.copilotgrpc.cli.v1.HookPreMcpToolCallInput;
import io.github.copilotgrpc.cli.v1.HookPreMcpToolCallOutput;
import io.github.copilotgrpc.cli.v1.HookPreToolUseInput;
import io.github.copilotgrpc.cli.v1.HookPreToolUseOutput;
import io.github.copilotgrpc.cli.v1.HookSessionEndInput;
import io.github.copilotgrpc.cli.v1.HookSessionEndOutput;
import io.github.copilotgrpc.cli.v1.HookSessionStartInput;
import io.github.copilotgrpc.cli.v1.HookSessionStartOutput;
import io.github.copilotgrpc.cli.v1.HookUserPromptSubmittedInput;
import io.github.copilotgrpc.cli.v1.HookUserPromptSubmittedOutput;
import io.github.copilotgrpc.cli.v1.HookUserPromptTransformedInput;
import io.github.copilotgrpc.cli.v1.HookUserPromptTransformedOutput;

/**
 * A hook of the agent with the messages of its input and its output.
 *
 * @param <I> the input
 * @param <O> the output
 */
public final class HookType<I extends Message, O extends Message> {
	/** The agent is about to call a tool. The output may deny the call or change its arguments. */
	public static final HookType<HookPreToolUseInput, HookPreToolUseOutput> PRE_TOOL_USE =
			new HookType<>("pre_tool_use", "preToolUse");
	/** The agent is about to call a tool of an MCP server. The output changes metadata. */
	public static final HookType<HookPreMcpToolCallInput, HookPreMcpToolCallOutput> PRE_MCP_TOOL_CALL =
			new HookType<>("pre_mcp_tool_call", "preMcpToolCall");
	/** A tool returned a result. The output may change it. */
	public static final HookType<HookPostToolUseInput, HookPostToolUseOutput> POST_TOOL_USE =
			new HookType<>("post_tool_use", "postToolUse");
	/** A tool failed. */
	public static final HookType<HookPostToolUseFailureInput, HookPostToolUseFailureOutput> POST_TOOL_USE_FAILURE =
			new HookType<>("post_tool_use_failure", "postToolUseFailure");
	/** A user submitted a prompt. The output may change it. */
	public static final HookType<HookUserPromptSubmittedInput, HookUserPromptSubmittedOutput> USER_PROMPT_SUBMITTED =
			new HookType<>("user_prompt_submitted", "userPromptSubmitted");
	/** The prompt has its final text. */
	public static final HookType<HookUserPromptTransformedInput, HookUserPromptTransformedOutput>
			USER_PROMPT_TRANSFORMED =
			new HookType<>("user_prompt_transformed", "userPromptTransformed");
	/** The session starts. */
	public static final HookType<HookSessionStartInput, HookSessionStartOutput> SESSION_START =
			new HookType<>("session_start", "sessionStart");
	/** The session ends. */
	public static final HookType<HookSessionEndInput, HookSessionEndOutput> SESSION_END =
			new HookType<>("session_end", "sessionEnd");
	/** An error occurred. */
	public static final HookType<HookErrorOccurredInput, HookErrorOccurredOutput> ERROR_OCCURRED =
			new HookType<>("error_occurred", "errorOccurred");
	/** The agent is about to end its turn. */
	public static final HookType<HookAgentStopInput, HookAgentStopOutput> AGENT_STOP =
			new HookType<>("agent_stop", "agentStop");

	private final String field;
	private final String name;

	private HookType(String field, String name) {
		this.field = field;
		this.name = name;
	}

	/** Field of the input in HookInvocation, and of the output in HookOutput. */
	String field() {
		return field;
	}

	/**
	 * Returns the CLI's name of the hook.
	 *
	 * @return the name, such as {@code preToolUse}
	 */
	public String name() {
		return name;
	}

	/** Returns the name. */
	@Override
	public String toString() {
		return name;
	}
}
