package io.github.copilotgrpc.testing;

import com.google.gson.GsonBuilder;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Rules that play the model; docs/offline-model.md of the repository describes them. Immutable: the methods return
 * longer copies. Text that no rule matches is repeated.
 */
public final class Script {
	private static final Map<String, Object> DEFAULT =
			Map.of("reply", List.of(Map.of("text", "You said: {{user}}")));

	private final List<Map<String, Object>> rules;

	private Script(List<Map<String, Object>> rules) {
		this.rules = rules;
	}

	/**
	 * Returns a script without rules.
	 *
	 * @return the script
	 */
	public static Script empty() {
		return new Script(List.of());
	}

	/**
	 * Adds a rule: the model answers a prompt with a text.
	 *
	 * @param user a part of the prompt
	 * @param text the text; {@code {{user}}} and {@code {{tool_result}}} are replaced
	 * @return the longer script
	 */
	public Script say(String user, String text) {
		return rule(Map.of("user", user), List.of(Map.of("text", text)));
	}

	/**
	 * Adds two rules: the model calls a tool, and answers its result with a text.
	 *
	 * @param user a part of the prompt
	 * @param tool the tool
	 * @param arguments the tool's arguments, values that JSON can hold
	 * @param then the text; {@code {{tool_result}}} is replaced
	 * @return the longer script
	 */
	public Script call(String user, String tool, Map<String, ?> arguments, String then) {
		return rule(Map.of("user", user), List.of(Map.of("tool_call", Map.of("name", tool, "arguments", arguments))))
				.rule(Map.of("tool_result", Map.of("name", tool)), List.of(Map.of("text", then)));
	}

	/**
	 * Adds a rule with any conditions and steps.
	 *
	 * @param when the conditions
	 * @param steps the steps of the reply
	 * @return the longer script
	 */
	public Script rule(Map<String, ?> when, List<? extends Map<String, ?>> steps) {
		Map<String, Object> rule = new LinkedHashMap<>();
		rule.put("when", when);
		rule.put("reply", List.copyOf(steps));
		List<Map<String, Object>> all = new ArrayList<>(rules);
		all.add(rule);
		return new Script(List.copyOf(all));
	}

	/** The script as JSON, which is YAML. */
	String toJson() {
		return new GsonBuilder().disableHtmlEscaping().create().toJson(Map.of("rules", rules, "default", DEFAULT));
	}
}
