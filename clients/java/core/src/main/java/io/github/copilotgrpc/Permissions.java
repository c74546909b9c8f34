package io.github.copilotgrpc;

import java.util.List;
import java.util.Set;

/** Rules that decide about permission requests. */
public final class Permissions {
	private Permissions() {}

	/**
	 * Approves every request once: for sandboxes and tests.
	 *
	 * @return the rule
	 */
	public static PermissionHandler approveAll() {
		return request -> Decision.approve();
	}

	/**
	 * Rejects every request.
	 *
	 * @return the rule
	 */
	public static PermissionHandler denyAll() {
		return request -> Decision.reject();
	}

	/**
	 * Approves requests of these kinds once, and abstains from others.
	 *
	 * @param kinds see {@link PermissionRequest#kind()}
	 * @return the rule
	 */
	public static PermissionHandler approve(String... kinds) {
		return when(Decision.approve(), kinds);
	}

	/**
	 * Approves requests of these kinds, and equal ones, for the rest of the session. Abstains from others.
	 *
	 * @param kinds see {@link PermissionRequest#kind()}
	 * @return the rule
	 */
	public static PermissionHandler approveForSession(String... kinds) {
		return when(Decision.approveForSession(), kinds);
	}

	/**
	 * Rejects requests of a kind with a text for the agent, and abstains from others.
	 *
	 * @param kind see {@link PermissionRequest#kind()}
	 * @param feedback the text
	 * @return the rule
	 */
	public static PermissionHandler reject(String kind, String feedback) {
		return when(Decision.reject(feedback), kind);
	}

	/**
	 * Asks rules in their order until one does not abstain. If all abstain, so does the result.
	 *
	 * @param rules the rules
	 * @return the rule
	 */
	public static PermissionHandler firstOf(PermissionHandler... rules) {
		List<PermissionHandler> all = List.of(rules);
		return request -> {
			for (PermissionHandler rule : all) {
				Decision decision = rule.decide(request);
				if (decision != null && !decision.abstains()) {
					return decision;
				}
			}
			return Decision.abstain();
		};
	}

	private static PermissionHandler when(Decision decision, String... kinds) {
		Set<String> all = Set.of(kinds);
		return request -> all.contains(request.kind()) ? decision : Decision.abstain();
	}
}
