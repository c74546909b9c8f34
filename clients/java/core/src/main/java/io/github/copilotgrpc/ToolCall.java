package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.cli.v1.ExternalToolRequestedData;

/**
 * The call that a tool executes.
 *
 * @param sessionId the session
 * @param callbackId id of the callback, as in {@link CopilotSession#resolve}
 * @param toolCallId the model's id of the call
 * @param toolName the tool
 * @param workingDirectory the session's directory on the CLI's machine; empty if unknown
 * @param traceparent W3C trace context of the call; empty if there is none
 * @param tracestate W3C trace state of the same context
 */
public record ToolCall(
		String sessionId, String callbackId, String toolCallId, String toolName, String workingDirectory,
		String traceparent, String tracestate) {
	static ToolCall of(Callback callback) {
		ExternalToolRequestedData request = callback.getToolCall();
		return new ToolCall(
				callback.getSessionId(), callback.getCallbackId(), request.getToolCallId(), request.getToolName(),
				request.getWorkingDirectory(), callback.getTraceparent(), callback.getTracestate());
	}
}
