package io.github.copilotgrpc;

import java.util.Locale;

/** Why events are missing. */
public enum GapReason {
	/** Ephemeral events, such as deltas, were no longer in the server's memory. */
	EPHEMERAL_LOST,
	/** The journal no longer has the events. */
	TRIMMED,
	/** The position is of an earlier epoch, whose events cannot be related to the present ones. */
	EPOCH_ENDED,
	/** A reason that is newer than this library. */
	UNKNOWN;

	static GapReason of(io.github.copilotgrpc.bridge.v1.GapReason reason) {
		return switch (reason) {
			case GAP_REASON_EPHEMERAL_LOST -> EPHEMERAL_LOST;
			case GAP_REASON_TRIMMED -> TRIMMED;
			case GAP_REASON_EPOCH_ENDED -> EPOCH_ENDED;
			case GAP_REASON_UNSPECIFIED, UNRECOGNIZED -> UNKNOWN;
		};
	}

	/** Returns the word of the API, such as {@code trimmed}. */
	@Override
	public String toString() {
		return name().toLowerCase(Locale.ROOT);
	}
}
