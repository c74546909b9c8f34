package io.github.copilotgrpc;

import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;

/** The lines that the library logs, in place of the tests' output. */
final class Logged implements AutoCloseable {
	private static final Logger LOG = Logger.getLogger("io.github.copilotgrpc");

	private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();
	private final Handler handler = new Handler() {
		@Override
		public void publish(LogRecord entry) {
			lines.add(entry.getLevel() + " " + new SimpleFormatter().formatMessage(entry)
					+ (entry.getThrown() == null ? "" : " with a stack"));
		}

		@Override
		public void flush() {}

		@Override
		public void close() {}
	};

	Logged() {
		LOG.setUseParentHandlers(false);
		LOG.setLevel(Level.INFO); // Java's default
		LOG.addHandler(handler);
	}

	List<String> lines() {
		return List.copyOf(lines);
	}

	/** Waits for a line. */
	void await(String line) throws InterruptedException {
		while (!FakeServer.soon(lines).equals(line)) {
			// Lines before it.
		}
	}

	@Override
	public void close() {
		LOG.removeHandler(handler);
		LOG.setLevel(null);
		LOG.setUseParentHandlers(true);
	}
}
