package io.github.copilotgrpc;

/**
 * The code of a tool that needs its arguments only.
 *
 * @param <T> type of the arguments
 * @see ToolCallFunction
 */
@FunctionalInterface
public interface ToolFunction<T> {
	/**
	 * Executes a call; see {@link Tool} for the results.
	 *
	 * @param arguments the arguments
	 * @return the result
	 * @throws Exception the tool failed; the model reads the text of a {@link ToolException} only
	 */
	Object call(T arguments) throws Exception;
}
