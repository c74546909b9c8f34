package io.github.copilotgrpc;

/** Executes a slash command. */
@FunctionalInterface
public interface CommandHandler {
	/**
	 * Executes the command.
	 *
	 * @param arguments the text after the command's name
	 * @throws Exception the command failed; its users see the text
	 */
	void run(String arguments) throws Exception;
}
