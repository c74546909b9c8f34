import io.github.copilotgrpc.Answers;
import io.github.copilotgrpc.CopilotClient;
import io.github.copilotgrpc.Decision;
import io.github.copilotgrpc.PendingCallback;
import io.github.copilotgrpc.PendingQuery;
import io.github.copilotgrpc.bridge.v1.GetUsageRequest;
import io.github.copilotgrpc.bridge.v1.UsageRow;
import io.github.copilotgrpc.conformance.v1.Inbox;
import io.github.copilotgrpc.conformance.v1.StepResult;
import java.util.List;
import java.util.Map;

/** Steps about more than one session. */
final class Inboxes {
	private Inboxes() {}

	static void usage(CopilotClient client, String session, StepResult.Builder result) {
		List<UsageRow> rows = client.usage(GetUsageRequest.newBuilder().setSessionId(session).build());
		result.setTurns(rows.stream().mapToLong(UsageRow::getTurns).sum());
		result.setRequests(rows.stream().mapToLong(UsageRow::getRequests).sum());
	}

	/** Answers callbacks of all sessions until as many have ended as the step says. */
	static void inbox(CopilotClient client, Inbox step) {
		Decision decision = step.getPermission().equals("approve") ? Decision.approve() : Decision.reject();
		PendingQuery query = PendingQuery.all().handle();
		for (Map.Entry<String, String> label : step.getLabelsMap().entrySet()) {
			query = query.label(label.getKey(), label.getValue());
		}
		int ended = 0;
		try (var changes = client.watchPending(query)) {
			for (var change : changes) {
				if (change instanceof PendingCallback pending) {
					pending.answer(Answers.permission(decision));
				} else if (++ended == step.getCount()) {
					return;
				}
			}
		}
	}
}
