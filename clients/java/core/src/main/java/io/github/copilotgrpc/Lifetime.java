package io.github.copilotgrpc;

import java.util.Locale;

/** When a session ends by itself. {@link CopilotSession#disconnect} and {@link CopilotSession#delete} always end it. */
public enum Lifetime {
	/** The session stays when its participants have left. */
	KEEP,
	/** The session is disconnected when its last participant leaves. Its history stays. */
	END_WITH_LAST_PARTICIPANT;

	io.github.copilotgrpc.bridge.v1.Lifetime proto() {
		return io.github.copilotgrpc.bridge.v1.Lifetime.valueOf("LIFETIME_" + name());
	}

	/** Returns the word of the API, such as {@code keep}. */
	@Override
	public String toString() {
		return name().toLowerCase(Locale.ROOT);
	}
}
