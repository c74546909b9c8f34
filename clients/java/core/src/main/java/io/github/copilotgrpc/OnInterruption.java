package io.github.copilotgrpc;

import java.util.Locale;

/** What the server does when a turn ends with its CLI process. */
public enum OnInterruption {
	/** The turn ends as {@link Outcome.Status#RUNTIME_LOST}, and the program decides what follows. */
	REPORT,
	/**
	 * The server tells the agent to continue, at most three times in a row. {@link CopilotSession#run} and {@link
	 * CopilotSession#sendAndWait} wait for the end of the continued turn.
	 */
	CONTINUE;

	io.github.copilotgrpc.bridge.v1.OnInterruption proto() {
		return io.github.copilotgrpc.bridge.v1.OnInterruption.valueOf("ON_INTERRUPTION_" + name());
	}

	/** Returns the word of the API, such as {@code continue}. */
	@Override
	public String toString() {
		return name().toLowerCase(Locale.ROOT);
	}
}
