package io.github.copilotgrpc;

import com.google.protobuf.ByteString;
import io.github.copilotgrpc.bridge.v1.Answer;
import io.github.copilotgrpc.bridge.v1.ToolAnswer;
import io.github.copilotgrpc.cli.v1.ExternalToolTextResultForLlm;
import io.github.copilotgrpc.cli.v1.ExternalToolTextResultForLlmBinaryResultsForLlm;
import io.github.copilotgrpc.cli.v1.ExternalToolTextResultForLlmBinaryResultsForLlmType;

/** A complete result of a tool. Immutable. */
public final class ToolResult {
	private final Answer answer;

	private ToolResult(Answer answer) {
		this.answer = answer;
	}

	/**
	 * Returns a success with a text.
	 *
	 * @param text text for the model
	 * @return the result
	 */
	public static ToolResult text(String text) {
		return new ToolResult(Answer.newBuilder().setTool(ToolAnswer.newBuilder().setText(text)).build());
	}

	/**
	 * Returns a failure.
	 *
	 * @param text text for the model
	 * @return the result
	 */
	public static ToolResult failure(String text) {
		String given = orDefault(text);
		return of(typed("failure", given).setError(given).build());
	}

	/** A failure whose cause is for the session's record, and not for the model. */
	static ToolResult failure(String text, Throwable cause) {
		return of(typed("failure", orDefault(text)).setError(cause.toString()).build());
	}

	private static String orDefault(String text) {
		return text == null || text.isEmpty() ? "The tool failed." : text;
	}

	/**
	 * Returns a refusal: the user or the program does not want this call.
	 *
	 * @param text text for the model
	 * @return the result
	 */
	public static ToolResult rejected(String text) {
		return of(typed("rejected", text).build());
	}

	/**
	 * Returns a refusal for lack of permission.
	 *
	 * @param text text for the model
	 * @return the result
	 */
	public static ToolResult denied(String text) {
		return of(typed("denied", text).build());
	}

	/**
	 * Returns an image or another file with a text.
	 *
	 * @param data the file
	 * @param mimeType its type, such as {@code image/png}
	 * @param text text for the model
	 * @return the result
	 */
	public static ToolResult binary(byte[] data, String mimeType, String text) {
		var type = mimeType.startsWith("image/")
				? ExternalToolTextResultForLlmBinaryResultsForLlmType
						.EXTERNAL_TOOL_TEXT_RESULT_FOR_LLM_BINARY_RESULTS_FOR_LLM_TYPE_IMAGE
				: ExternalToolTextResultForLlmBinaryResultsForLlmType
						.EXTERNAL_TOOL_TEXT_RESULT_FOR_LLM_BINARY_RESULTS_FOR_LLM_TYPE_RESOURCE;
		var file = ExternalToolTextResultForLlmBinaryResultsForLlm.newBuilder()
				.setBinaryType(type).setData(ByteString.copyFrom(data)).setMimeType(mimeType);
		return of(typed("success", text).addBinaryResultsForLlm(file).build());
	}

	/**
	 * Returns a result with every field that the CLI knows.
	 *
	 * @param message the result
	 * @return the result
	 */
	public static ToolResult of(ExternalToolTextResultForLlm message) {
		return new ToolResult(Answer.newBuilder().setTool(ToolAnswer.newBuilder().setResult(message)).build());
	}

	/**
	 * Leaves the call to other participants.
	 *
	 * @return the result
	 */
	public static ToolResult abstain() {
		return new ToolResult(Answers.abstain());
	}

	Answer toAnswer() {
		return answer;
	}

	private static ExternalToolTextResultForLlm.Builder typed(String type, String text) {
		return ExternalToolTextResultForLlm.newBuilder().setResultType(type).setTextResultForLlm(text);
	}
}
