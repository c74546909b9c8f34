package io.github.copilotgrpc;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;

/** The library's log. */
final class Log {
	private static final Logger LOG = System.getLogger("io.github.copilotgrpc");

	private Log() {}

	static void error(String message, Throwable error) {
		LOG.log(Level.ERROR, message, error);
	}

	/** Logs that code of the program failed: with its stack, unless the program meant it to fail with this text. */
	static void failed(String code, String sessionId, String callbackId, Throwable error, boolean isMeant) {
		String message = code + " failed: session " + sessionId + ", callback " + callbackId + ": " + error.getMessage();
		if (isMeant) {
			LOG.log(Level.WARNING, message);
		} else {
			LOG.log(Level.WARNING, message, error);
		}
	}

	static void warn(String message, Object detail) {
		LOG.log(Level.WARNING, "{0}: {1}", message, detail);
	}

	static void info(String message, Object detail) {
		LOG.log(Level.INFO, "{0}: {1}", message, detail);
	}

	static void debug(String message, Object detail) {
		LOG.log(Level.DEBUG, "{0}: {1}", message, detail);
	}
}
