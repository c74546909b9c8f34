package io.github.copilotgrpc;

import com.google.protobuf.Message;
import io.github.copilotgrpc.bridge.v1.Abstain;
import io.github.copilotgrpc.bridge.v1.Answer;
import io.github.copilotgrpc.bridge.v1.AnswerError;
import io.github.copilotgrpc.bridge.v1.RawAnswer;
import io.github.copilotgrpc.bridge.v1.ToolAnswer;

/** Makes answers for {@link CopilotSession#resolve}. */
public final class Answers {
	private Answers() {}

	/**
	 * Answers a tool call. The result is treated like that of a {@link Tool}.
	 *
	 * @param result the result
	 * @return the answer
	 * @throws IllegalArgumentException JSON cannot hold the result
	 */
	public static Answer tool(Object result) {
		if (result instanceof ToolResult complete) {
			return complete.toAnswer();
		}
		String text = "Done.";
		if (result != null) {
			text = result instanceof CharSequence ? result.toString() : Json.write(result);
		}
		return Answer.newBuilder().setTool(ToolAnswer.newBuilder().setText(text)).build();
	}

	/**
	 * Answers a permission request.
	 *
	 * @param decision the decision
	 * @return the answer
	 */
	public static Answer permission(Decision decision) {
		return decision.toAnswer();
	}

	/**
	 * Answers a callback with the message of its kind.
	 *
	 * @param <A> type of the answer
	 * @param type the kind
	 * @param answer the message
	 * @return the answer
	 */
	public static <A extends Message> Answer of(CallbackType<?, A> type, A answer) {
		return type.answer(answer);
	}

	/**
	 * Answers a callback that is newer than this library.
	 *
	 * @param value a value that JSON can hold
	 * @return the answer
	 * @throws IllegalArgumentException JSON cannot hold the value
	 */
	public static Answer raw(Object value) {
		return Answer.newBuilder().setRaw(RawAnswer.newBuilder().setResultJson(Json.write(value))).build();
	}

	/**
	 * Answers any callback with an error.
	 *
	 * @param text the error
	 * @return the answer
	 */
	public static Answer error(String text) {
		return Answer.newBuilder().setError(AnswerError.newBuilder().setMessage(text)).build();
	}

	static Answer abstain() {
		return Answer.newBuilder().setAbstain(Abstain.getDefaultInstance()).build();
	}
}
