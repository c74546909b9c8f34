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

	static void warn(String message, Object detail) {
		LOG.log(Level.WARNING, "{0}: {1}", message, detail);
	}

	static void debug(String message, Object detail) {
		LOG.log(Level.DEBUG, "{0}: {1}", message, detail);
	}
}
