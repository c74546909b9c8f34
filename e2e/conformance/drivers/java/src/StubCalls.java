import io.github.copilotgrpc.Answers;
import io.github.copilotgrpc.CopilotClient;
import io.github.copilotgrpc.Decision;
import io.github.copilotgrpc.bridge.v1.CallbackServiceGrpc;
import io.github.copilotgrpc.bridge.v1.GetUsageRequest;
import io.github.copilotgrpc.bridge.v1.PendingFilter;
import io.github.copilotgrpc.bridge.v1.ResolveRequest;
import io.github.copilotgrpc.bridge.v1.SessionServiceGrpc;
import io.github.copilotgrpc.bridge.v1.UpdateLabelsRequest;
import io.github.copilotgrpc.bridge.v1.UsageRow;
import io.github.copilotgrpc.bridge.v1.WatchPendingRequest;
import io.github.copilotgrpc.conformance.v1.Inbox;
import io.github.copilotgrpc.conformance.v1.StepResult;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/** Steps for which the library has only the generated stubs. */
final class StubCalls {
	private StubCalls() {}

	static Map<String, String> updateLabels(CopilotClient client, String session, Map<String, String> set,
			List<String> remove) {
		var request = UpdateLabelsRequest.newBuilder().setSessionId(session).putAllSet(set).addAllRemove(remove);
		return SessionServiceGrpc.newBlockingStub(client.channel()).updateLabels(request.build()).getSession()
				.getLabelsMap();
	}

	static void usage(CopilotClient client, String session, StepResult.Builder result) {
		var reply = SessionServiceGrpc.newBlockingStub(client.channel())
				.getUsage(GetUsageRequest.newBuilder().setSessionId(session).build());
		result.setTurns(reply.getRowsList().stream().mapToLong(UsageRow::getTurns).sum());
		result.setRequests(reply.getRowsList().stream().mapToLong(UsageRow::getRequests).sum());
	}

	/** Answers callbacks of all sessions until as many have ended as the step says. */
	static void inbox(CopilotClient client, Inbox step) {
		var stub = CallbackServiceGrpc.newBlockingStub(client.channel());
		Decision decision = step.getPermission().equals("approve") ? Decision.approve() : Decision.reject();
		var filter = PendingFilter.newBuilder().putAllLabels(step.getLabelsMap());
		var context = io.grpc.Context.current().withCancellation();
		var before = context.attach();
		try {
			int ended = 0;
			var changes = stub.watchPending(WatchPendingRequest.newBuilder().setFilter(filter).setHandle(true).build());
			while (ended < step.getCount() && changes.hasNext()) {
				var change = changes.next();
				if (change.hasRequested()) {
					stub.resolve(ResolveRequest.newBuilder().setSessionId(change.getRequested().getSessionId())
							.setCallbackId(change.getRequested().getCallbackId()).setRequestId(UUID.randomUUID().toString())
							.setAnswer(Answers.permission(decision)).build());
				}
				ended += change.hasResolved() ? 1 : 0;
			}
		} finally {
			context.detach(before);
			context.cancel(null);
		}
	}
}
