package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.Answer;
import io.github.copilotgrpc.bridge.v1.AttachRequest;
import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.bridge.v1.CallbackAnswer;
import io.github.copilotgrpc.errors.CallbackNotFoundException;
import io.github.copilotgrpc.errors.CallbackResolvedException;
import io.github.copilotgrpc.errors.CopilotException;
import io.grpc.Status;
import io.grpc.SynchronizationContext;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * The pending callbacks that a participant answers. Nothing here waits for a handler. All methods run in the
 * participant's context.
 */
final class Calls {
	/** Other handlers than tools that run at once, so that questions to people do not hold up tools. */
	private static final int MAX_QUESTIONS = 64;
	/** Callbacks of one participant. The server has no more of a session. */
	static final int MAX_CALLS = 1024;

	/** What a call needs of its participant. */
	interface Owner {
		/** The link to answer on, when there is one; fails when the participation is over. */
		CompletableFuture<Link> live();
	}

	/** The server's reply to an answer: taken, refused, or the link broke before the reply. */
	private record Reply(CopilotException refusal, boolean linkDown) {
		static final Reply TAKEN = new Reply(null, false);
		static final Reply LINK_DOWN = new Reply(null, true);
	}

	/** A callback in hand. The answer of a handler that ran stays here until the server has acknowledged it. */
	private static final class Call {
		private final Callback callback;
		private final boolean offered;
		private final Backoff backoff;
		private Handlers.Running running;
		private Answer answer;
		private CompletableFuture<Reply> reply;
		private boolean dropped;

		private Call(Callback callback, boolean offered, Reconnect policy) {
			this.callback = callback;
			this.offered = offered;
			this.backoff = new Backoff(policy);
		}

		private void notify(Reply value) {
			if (reply != null) {
				reply.complete(value);
			}
		}
	}

	private final Connection connection;
	private final SynchronizationContext sync;
	private final Handlers handlers;
	private final Owner owner;
	private final Permits tools;
	private final Permits questions = new Permits(MAX_QUESTIONS);
	private final Map<String, Call> byId = new LinkedHashMap<>();

	Calls(Connection connection, SynchronizationContext sync, Handlers handlers, int maxTools, Owner owner) {
		this.connection = connection;
		this.sync = sync;
		this.handlers = handlers;
		this.owner = owner;
		this.tools = new Permits(maxTools);
	}

	/** Starts to answer a callback, unless it is in hand: then its answer is sent again anyway. */
	void ask(Callback callback, boolean offered) {
		if (byId.containsKey(callback.getCallbackId())) {
			return;
		}
		if (callback.getTotalBytes() == 0 && !handlers.takes(callback, offered)) {
			return;
		}
		Call call = new Call(callback, offered, connection.reconnect());
		byId.put(callback.getCallbackId(), call);
		if (byId.size() > MAX_CALLS) {
			Log.warn("too many callbacks at once", callback.getCallbackId());
			deliver(call, Answers.error("too many callbacks at once"));
		} else if (callback.getTotalBytes() > 0) {
			readWhole(call);
		} else {
			handle(call, callback);
		}
	}

	/** Takes the server's reply to an answer; the failure is null for success. */
	void settle(String callbackId, CopilotException failure) {
		Call call = byId.get(callbackId);
		if (call != null) {
			call.notify(failure == null ? Reply.TAKEN : new Reply(failure, false));
		}
	}

	/** Ends a callback whose answer is no longer needed: its handler is interrupted. */
	void withdraw(String callbackId) {
		Call call = byId.get(callbackId);
		if (call == null) {
			return;
		}
		drop(call);
		call.notify(Reply.TAKEN); // answered, by this participant or another one
		if (call.running != null) {
			call.running.cancel();
		}
	}

	/** Compares with what is pending on the server: takes up new callbacks, and ends those that are over. */
	void reconcile(Collection<Callback> pending, String participantId) {
		Map<String, Callback> pendingById = new LinkedHashMap<>();
		pending.forEach(callback -> pendingById.put(callback.getCallbackId(), callback));
		List<String> over = new ArrayList<>(byId.keySet());
		over.removeAll(pendingById.keySet());
		over.forEach(this::withdraw);
		for (Callback callback : pendingById.values()) {
			// A callback without participants, or whose participants left, is open to every handler.
			boolean open = callback.getParticipantIdsCount() == 0;
			ask(callback, open || callback.getParticipantIdsList().contains(participantId));
		}
	}

	/** Sends the answers without a reply again, on the next link. */
	void linkDown() {
		List.copyOf(byId.values()).forEach(call -> call.notify(Reply.LINK_DOWN));
	}

	/** Ends all callbacks. */
	void close() {
		List.copyOf(byId.keySet()).forEach(this::withdraw);
	}

	private void readWhole(Call call) {
		Callback head = call.callback;
		connection.readCallback(head.getSessionId(), head.getCallbackId())
				.whenComplete((whole, error) -> sync.execute(() -> {
					if (call.dropped) {
						return;
					}
					if (error != null && Errors.of(error) instanceof CallbackResolvedException) {
						drop(call);
					} else if (error != null) {
						Log.warn("callback not read", error);
						deliver(call, Answers.error("the request could not be read"));
					} else if (!handlers.takes(whole, call.offered)) {
						drop(call);
					} else {
						handle(call, whole);
					}
				}));
	}

	private void handle(Call call, Callback callback) {
		Permits permits = callback.hasToolCall() ? tools : questions;
		permits.acquire(() -> {
			if (call.dropped) {
				permits.release();
				return;
			}
			call.running = handlers.start(callback);
			// A handler that ignores its interruption keeps its permit, so that threads stay bounded.
			call.running.ended().whenComplete((nothing, error) -> sync.execute(permits::release));
			call.running.answer().whenComplete((answer, error) -> sync.execute(() -> {
				if (!call.dropped && answer != null) {
					deliver(call, answer);
				}
			}));
		});
	}

	/**
	 * Sends an answer until the server has taken it: again on a new link, or after the runtime was away, and as an
	 * error if the server refuses it, so that the turn continues.
	 */
	private void deliver(Call call, Answer answer) {
		call.answer = answer;
		owner.live().whenComplete((link, over) -> {
			if (over != null) {
				drop(call);
			} else if (!call.dropped) {
				deliver(call, link);
			}
		});
	}

	private void deliver(Call call, Link link) {
		CompletableFuture<Reply> reply = new CompletableFuture<>();
		call.reply = reply;
		CallbackAnswer answer = CallbackAnswer.newBuilder()
				.setCallbackId(call.callback.getCallbackId()).setAnswer(call.answer).build();
		link.send(AttachRequest.newBuilder().setAnswer(answer).build()).thenRun(() -> {
			if (call.dropped) {
				return;
			}
			if (link.isDown()) {
				deliver(call, call.answer);
			} else if (call.answer.hasAbstain()) {
				drop(call); // the server does not reply
			} else {
				reply.thenAccept(value -> replied(call, value));
			}
		});
	}

	private void replied(Call call, Reply reply) {
		CopilotException refusal = reply.refusal();
		if (call.dropped) {
			return;
		}
		if (reply.linkDown()) {
			call.backoff.reset();
			deliver(call, call.answer);
			return;
		}
		if (refusal == null || refusal instanceof CallbackResolvedException
				|| refusal instanceof CallbackNotFoundException) {
			drop(call);
			return;
		}
		Log.warn("answer refused", refusal);
		if (refusal.code() == Status.Code.INVALID_ARGUMENT && !call.answer.hasError()) {
			deliver(call, Answers.error(refusal.getMessage()));
			return;
		}
		Optional<Duration> pause = refusal.code() == Status.Code.UNAVAILABLE
				? call.backoff.next(refusal) : Optional.empty();
		if (pause.isEmpty()) {
			drop(call);
		} else {
			sync.schedule(() -> {
				if (!call.dropped) {
					deliver(call, call.answer);
				}
			}, pause.get().toNanos(), TimeUnit.NANOSECONDS, connection.timer());
		}
	}

	private void drop(Call call) {
		call.dropped = true;
		byId.remove(call.callback.getCallbackId(), call);
	}
}
