package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.AttachCommand;
import io.github.copilotgrpc.bridge.v1.AttachRequest;
import io.github.copilotgrpc.bridge.v1.SetToolsCommand;
import io.github.copilotgrpc.errors.CopilotException;
import io.grpc.SynchronizationContext;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;

/** The commands of a participant that wait for a reply. All methods run in the participant's context. */
final class Commands {
	private final SynchronizationContext sync;
	private final Handlers handlers;
	private final Calls.Owner owner;
	private final Map<String, CompletableFuture<Void>> replies = new HashMap<>();
	private CompletableFuture<Void> last = CompletableFuture.completedFuture(null);

	Commands(SynchronizationContext sync, Handlers handlers, Calls.Owner owner) {
		this.sync = sync;
		this.handlers = handlers;
		this.owner = owner;
	}

	/** Replaces the tools, after earlier replacements. */
	CompletableFuture<Void> setTools(Map<String, Tool> tools) {
		CompletableFuture<Void> turn = new CompletableFuture<>();
		last.whenComplete((nothing, error) -> sync.execute(() -> Futures.relay(replaceTools(tools), turn)));
		last = turn;
		return turn;
	}

	/** Takes the server's reply; the failure is null for success. */
	void replied(String commandId, CopilotException failure) {
		CompletableFuture<Void> reply = replies.remove(commandId);
		if (reply != null && failure == null) {
			reply.complete(null);
		} else if (reply != null) {
			reply.completeExceptionally(failure);
		}
	}

	/** Ends the wait for replies: the next link starts with the new state. */
	void linkDown() {
		List<CompletableFuture<Void>> waiting = List.copyOf(replies.values());
		replies.clear();
		waiting.forEach(reply -> reply.complete(null));
	}

	private CompletableFuture<Void> replaceTools(Map<String, Tool> tools) {
		Map<String, Tool> before = handlers.tools();
		handlers.setTools(tools);
		SetToolsCommand command = SetToolsCommand.newBuilder().addAllTools(handlers.declaredTools(false)).build();
		return send(AttachCommand.newBuilder().setSetTools(command)).whenComplete((nothing, error) -> {
			if (error != null) {
				handlers.setTools(before);
			}
		});
	}

	private CompletableFuture<Void> send(AttachCommand.Builder command) {
		String id = UUID.randomUUID().toString();
		AttachRequest frame = AttachRequest.newBuilder().setCommand(command.setCommandId(id)).build();
		return owner.live().thenCompose(link -> {
			CompletableFuture<Void> reply = new CompletableFuture<>();
			replies.put(id, reply);
			return link.send(frame).thenCompose(nothing -> {
				if (link.isDown()) {
					replied(id, null);
				}
				return reply;
			});
		}).thenCompose(nothing -> owner.live().thenApply(link -> null)); // a new link starts with the new tools
	}
}
