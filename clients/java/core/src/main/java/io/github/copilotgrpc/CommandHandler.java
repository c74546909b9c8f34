package io.github.copilotgrpc;

/** Executes a slash command. */
@FunctionalInterface
public interface CommandHandler {
	/**
	 * Executes the command.
	 *
	 * @param arguments the text after the command's name
	 * @throws Exception the command failed; users see the text of a {@link HandlerException}
	 */
	void run(String arguments) throws Exception;
}
