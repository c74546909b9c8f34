package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.Answer;
import io.github.copilotgrpc.cli.v1.PermissionDecision;
import io.github.copilotgrpc.cli.v1.PermissionDecisionApproveForSession;
import io.github.copilotgrpc.cli.v1.PermissionDecisionApproveOnce;
import io.github.copilotgrpc.cli.v1.PermissionDecisionReject;
import io.github.copilotgrpc.cli.v1.PermissionDecisionUserNotAvailable;

/** A decision about a permission request. Immutable. */
public final class Decision {
	private static final Decision ABSTAIN = new Decision(null);

	private final PermissionDecision message; // null abstains

	private Decision(PermissionDecision message) {
		this.message = message;
	}

	/**
	 * Approves the request.
	 *
	 * @return the decision
	 */
	public static Decision approve() {
		return of(PermissionDecision.newBuilder()
				.setApproveOnce(PermissionDecisionApproveOnce.getDefaultInstance()).build());
	}

	/**
	 * Approves the request and equal ones for the rest of the session: the same commands, the same tool, all
	 * reading or all writing, or the URL's origin. A request without an equal, such as a hook's, is denied.
	 *
	 * @return the decision
	 */
	public static Decision approveForSession() {
		return of(PermissionDecision.newBuilder()
				.setApproveForSession(PermissionDecisionApproveForSession.getDefaultInstance()).build());
	}

	/**
	 * Rejects the request.
	 *
	 * @return the decision
	 */
	public static Decision reject() {
		return reject("Permission denied.");
	}

	/**
	 * Rejects the request with a text for the agent. An empty text also aborts the turn.
	 *
	 * @param feedback the text
	 * @return the decision
	 */
	public static Decision reject(String feedback) {
		PermissionDecisionReject.Builder rejection = PermissionDecisionReject.newBuilder();
		if (!feedback.isEmpty()) {
			rejection.setFeedback(feedback);
		}
		return of(PermissionDecision.newBuilder().setReject(rejection).build());
	}

	/**
	 * Rejects the request because no user is available.
	 *
	 * @return the decision
	 */
	public static Decision userNotAvailable() {
		return of(PermissionDecision.newBuilder()
				.setUserNotAvailable(PermissionDecisionUserNotAvailable.getDefaultInstance()).build());
	}

	/**
	 * Leaves the request to the next rule, and then to other participants.
	 *
	 * @return the decision
	 */
	public static Decision abstain() {
		return ABSTAIN;
	}

	/**
	 * Returns any decision that the CLI knows.
	 *
	 * @param message the decision
	 * @return the decision
	 */
	public static Decision of(PermissionDecision message) {
		return new Decision(message);
	}

	boolean abstains() {
		return message == null;
	}

	Answer toAnswer() {
		return message == null ? Answers.abstain() : Answer.newBuilder().setPermission(message).build();
	}
}
