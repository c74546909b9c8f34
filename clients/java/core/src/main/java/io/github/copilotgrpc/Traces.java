package io.github.copilotgrpc;

import java.util.Map;
import java.util.concurrent.Callable;

/** Trace contexts of callbacks and prompts, in programs that have OpenTelemetry's API. */
abstract class Traces {
	private static final Traces PRESENT = find();

	/** Runs an action in a trace context. */
	static <T> T run(String traceparent, String tracestate, Callable<T> action) throws Exception {
		return PRESENT == null || traceparent.isEmpty() ? action.call() : PRESENT.within(traceparent, tracestate, action);
	}

	/** The traceparent and tracestate of the current span; empty without one. */
	static Map<String, String> current() {
		return PRESENT == null ? Map.of() : PRESENT.injected();
	}

	abstract <T> T within(String traceparent, String tracestate, Callable<T> action) throws Exception;

	abstract Map<String, String> injected();

	private static Traces find() {
		try {
			Class.forName("io.opentelemetry.api.GlobalOpenTelemetry", false, Traces.class.getClassLoader());
			return new OpenTelemetryTraces();
		} catch (ClassNotFoundException | LinkageError e) {
			return null;
		}
	}
}
