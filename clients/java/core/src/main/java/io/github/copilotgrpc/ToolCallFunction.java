package io.github.copilotgrpc;

/**
 * The code of a tool that also receives the ids of its call.
 *
 * @param <T> type of the arguments
 */
@FunctionalInterface
public interface ToolCallFunction<T> {
	/**
	 * Executes a call; see {@link Tool} for the results.
	 *
	 * @param arguments the arguments
	 * @param call the call
	 * @return the result
	 * @throws Exception the tool failed; the model reads the text of a {@link ToolException} only
	 */
	Object call(T arguments, ToolCall call) throws Exception;
}
