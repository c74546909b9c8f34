package io.github.copilotgrpc;

import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.propagation.TextMapGetter;
import io.opentelemetry.context.propagation.TextMapPropagator;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;

/** The only class that uses OpenTelemetry: programs without it never load the class. */
final class OpenTelemetryTraces extends Traces {
	private static final TextMapGetter<Map<String, String>> GETTER = new TextMapGetter<>() {
		@Override
		public Iterable<String> keys(Map<String, String> carrier) {
			return carrier.keySet();
		}

		@Override
		public String get(Map<String, String> carrier, String key) {
			return carrier == null ? null : carrier.get(key);
		}
	};

	@Override
	<T> T within(String traceparent, String tracestate, Callable<T> action) throws Exception {
		Map<String, String> carrier = new HashMap<>(Map.of("traceparent", traceparent));
		if (!tracestate.isEmpty()) {
			carrier.put("tracestate", tracestate);
		}
		return propagator().extract(Context.current(), carrier, GETTER).wrap(action).call();
	}

	@Override
	Map<String, String> injected() {
		Map<String, String> carrier = new HashMap<>();
		propagator().inject(Context.current(), carrier, (map, key, value) -> map.put(key, value));
		carrier.keySet().retainAll(Set.of("traceparent", "tracestate"));
		return carrier;
	}

	private static TextMapPropagator propagator() {
		return GlobalOpenTelemetry.getPropagators().getTextMapPropagator();
	}
}
