package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.AttachLeave;
import io.github.copilotgrpc.bridge.v1.AttachOpening;
import io.github.copilotgrpc.bridge.v1.AttachRequest;
import io.github.copilotgrpc.bridge.v1.AttachResponse;
import io.github.copilotgrpc.bridge.v1.AttachStart;
import io.github.copilotgrpc.bridge.v1.AttachStarted;
import io.github.copilotgrpc.bridge.v1.CallbackServiceGrpc;
import io.github.copilotgrpc.bridge.v1.LeaveRequest;
import io.github.copilotgrpc.bridge.v1.LeaveResponse;
import io.github.copilotgrpc.errors.ConnectionLostException;
import io.github.copilotgrpc.errors.CopilotException;
import io.github.copilotgrpc.errors.DeadlineExceededException;
import io.github.copilotgrpc.errors.ParticipantNotFoundException;
import io.github.copilotgrpc.errors.SessionClosedException;
import io.github.copilotgrpc.errors.SessionNotFoundException;
import io.github.copilotgrpc.errors.UnauthenticatedException;
import io.grpc.SynchronizationContext;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** The participation of this program in a session: one Attach stream after another. */
final class Participant implements Link.Owner, Incoming.Owner {
	private static final Duration LEAVE_PAUSE = Duration.ofMillis(100);
	private static final Duration LEAVE_LONGEST_PAUSE = Duration.ofSeconds(1);

	private final Connection connection;
	private final Starts starts;
	// Guards the fields below: only its tasks change them.
	private final SynchronizationContext sync = new SynchronizationContext((thread, error) -> {
		Log.error("a participant failed", error);
		finish(Errors.of(error));
	});
	private final Calls calls;
	private final Incoming incoming;
	private final Commands commands;
	private final Models models;
	private final ConnectionListener listener;
	private final Progress progress = new Progress();
	private final CompletableFuture<CopilotException> ended = new CompletableFuture<>();
	private final List<CompletableFuture<Link>> waiting = new ArrayList<>();
	private volatile String sessionId = "";
	private volatile String participantId = "";
	private String token = "";
	private Link link; // null while there is none
	private Link old; // the one before, until the next one is open
	private Link dialed; // the one that is being opened
	private boolean leaving;
	private CompletableFuture<LeaveResponse> goodbye; // null unless the call that leaves was made

	Participant(Connection connection, Starts starts, Handlers handlers, Models models, HandlerSet set) {
		this.connection = connection;
		this.starts = starts;
		this.models = models;
		this.calls = new Calls(connection, sync, handlers, set.maxConcurrentTools(), this::live);
		this.commands = new Commands(sync, handlers, this::live);
		this.incoming = new Incoming(progress, calls, commands, models, this);
		this.listener = new ConnectionListener(set.connectionListener(), connection.executor());
	}

	@Override
	public String sessionId() {
		return sessionId;
	}

	@Override
	public String participantId() {
		return participantId;
	}

	Progress progress() {
		return progress;
	}

	/** Completes with the reason for the end of the participation. */
	CompletableFuture<CopilotException> ended() {
		return ended;
	}

	/** Opens the first stream. The request id in `start` makes it safe to repeat. */
	CompletableFuture<AttachStarted> open(AttachStart start) {
		CompletableFuture<AttachStarted> result = new CompletableFuture<>();
		CompletableFuture<AttachStarted> opening = connection.repeat(connection.callPolicy(), () -> {
			CompletableFuture<AttachStarted> attempt = new CompletableFuture<>();
			sync.execute(() -> Futures.relay(dial(starts.complete(start)), attempt));
			return attempt;
		});
		opening.whenComplete((started, error) -> sync.execute(() -> {
			if (error != null) {
				if (!leaving) {
					finish(Errors.of(error));
				}
				result.completeExceptionally(Errors.unwrap(error));
			} else {
				adopt(started);
				if (ended.isDone()) {
					callLeave(); // given up just before
				} else if (!result.complete(started)) {
					leave(false); // cancelled just now
				}
			}
		}));
		Futures.onCancel(result, () -> {
			leave(false);
			opening.cancel(true);
		});
		return result;
	}

	/** The link, when there is one; fails with the reason when the participation is over. Call in the context. */
	CompletableFuture<Link> live() {
		if (ended.isDone()) {
			return CompletableFuture.failedFuture(ended.join());
		}
		if (link != null) {
			return CompletableFuture.completedFuture(link);
		}
		CompletableFuture<Link> next = new CompletableFuture<>();
		waiting.add(next);
		return next;
	}

	/** Sends a frame on the next link that is open. The future completes when gRPC has taken the frame. */
	CompletableFuture<Void> send(AttachRequest frame) {
		CompletableFuture<Void> sent = new CompletableFuture<>();
		sync.execute(() -> Futures.relay(live().thenCompose(open -> open.send(frame)), sent));
		return sent;
	}

	/** Completes when a stream is open; fails with the reason when the participation is over. */
	CompletableFuture<Void> whenLive() {
		CompletableFuture<Void> result = new CompletableFuture<>();
		sync.execute(() -> Futures.relay(live().thenApply(open -> null), result));
		return result;
	}

	/** Replaces the participant's tools, here and on the server. */
	CompletableFuture<Void> setTools(Map<String, Tool> tools) {
		CompletableFuture<Void> result = new CompletableFuture<>();
		sync.execute(() -> Futures.relay(commands.setTools(tools), result));
		return result;
	}

	/**
	 * Ends the participation: with a goodbye on the link, or with a call if there is none. The future completes when it
	 * has ended, with or without the server, after the client's time limit at the latest.
	 */
	CompletableFuture<Void> leave(boolean disconnect) {
		sync.execute(() -> {
			if (ended.isDone() || leaving) {
				return;
			}
			leaving = true;
			sync.schedule(() -> left(new DeadlineExceededException("the server does not answer")),
					connection.closeTimeout().toNanos(), TimeUnit.NANOSECONDS, connection.timer());
			if (link != null && link.started.isDone()) {
				sayGoodbye(disconnect);
			} else {
				leaveWithoutLink();
			}
		});
		return ended.thenApply(reason -> null);
	}

	private void sayGoodbye(boolean disconnect) {
		AttachLeave goodbye = AttachLeave.newBuilder().setDisconnect(disconnect).build();
		link.send(AttachRequest.newBuilder().setLeave(goodbye).build());
	}

	/** Leaves with the token: otherwise the server keeps the participant and its tools for a grace time. */
	private void leaveWithoutLink() {
		boolean dialing = dialed != null && !dialed.isDown();
		if (token.isEmpty()) { // the participant has expired, or was never made
			if (!dialing || sessionId.isEmpty()) {
				finish(closed());
			} // else the stream that is being opened makes a new participant, which says goodbye on it
			return;
		}
		goodbye = callLeave(); // before the dial fails, which would end the participation without a goodbye
		if (dialing) {
			dialed.close();
		}
		goodbye.whenComplete((reply, error) -> sync.execute(() -> left(error)));
	}

	private CompletableFuture<LeaveResponse> callLeave() {
		LeaveRequest request = LeaveRequest.newBuilder().setSessionId(sessionId).setParticipantToken(token).build();
		Duration limit = connection.closeTimeout();
		return connection.repeat(new Reconnect(LEAVE_PAUSE, LEAVE_LONGEST_PAUSE, limit),
				() -> connection.unary(CallbackServiceGrpc.getLeaveMethod(), request, null, limit));
	}

	/** Ends the participation after the attempt to leave; the error is null for success. */
	private void left(Throwable error) {
		CopilotException failure = error == null ? null : Errors.of(error);
		boolean isGone = failure instanceof SessionNotFoundException; // together with its participants
		if (failure != null && !isGone && !ended.isDone()) {
			Log.warn("left session " + sessionId + " without the server", failure);
		}
		finish(closed());
	}

	private CopilotException closed() {
		return new SessionClosedException(sessionId, "closed");
	}

	// Streams.

	private CompletableFuture<AttachStarted> dial(AttachStart start) {
		Link opened = new Link(connection, sync, this);
		dialed = opened;
		opened.open(start);
		CompletableFuture<AttachStarted> result = new CompletableFuture<>();
		opened.started.whenComplete((started, error) -> {
			if (error != null) {
				setLink(null, opened);
				linkDown(opened);
				result.completeExceptionally(error);
			} else if (!result.complete(started)) {
				opened.close();
			}
		});
		Futures.onCancel(result, () -> sync.execute(opened::close));
		return result;
	}

	/** Takes the link that has just started as the live one. */
	private void adopt(AttachStarted started) {
		Link opened = dialed;
		dialed = null;
		sessionId = started.getSession().getSessionId();
		participantId = started.getParticipantId();
		token = started.getParticipantToken();
		if (ended.isDone() || opened.isDown()) {
			if (!ended.isDone()) { // it broke just after its start
				lost(opened, new ConnectionLostException("the attach stream broke"));
			}
			return;
		}
		progress.note(started.getSession().getPosition());
		setLink(opened, null);
	}

	private void setLink(Link next, Link only) {
		if (only != null && link != only) {
			return;
		}
		link = next;
		if (next != null) {
			List<CompletableFuture<Link>> waiters = List.copyOf(waiting);
			waiting.clear();
			waiters.forEach(waiter -> waiter.complete(next));
		}
	}

	@Override
	public void received(Link from, AttachResponse frame) {
		if (from.started.isDone()) {
			incoming.take(from, frame);
		} else if (frame.hasStarted()) {
			from.started.complete(frame.getStarted());
		} else if (frame.hasOpening()) {
			AttachOpening opening = frame.getOpening();
			sessionId = opening.getSessionId();
			participantId = opening.getParticipantId();
			token = opening.getParticipantToken();
			setLink(from, null); // the server needs answers to open the session
		} else if (frame.hasProgress()) {
			Log.info("waiting for the server", frame.getProgress().getDetail());
		} else {
			incoming.take(from, frame);
		}
	}

	@Override
	public void ended(Link from, CopilotException error) {
		lost(from, error);
	}

	private void linkDown(Link broken) {
		broken.down();
		calls.linkDown();
		commands.linkDown();
	}

	/** Ends the use of a link. The cause is null if the server asks for a new stream. */
	@Override
	public void lost(Link broken, CopilotException cause) {
		if (!broken.started.isDone()) { // still being opened: the dial fails
			broken.started.completeExceptionally(
					cause != null ? cause : new ConnectionLostException("the server asks to reconnect"));
			broken.close();
			return;
		}
		setLink(null, broken);
		linkDown(broken);
		if (ended.isDone()) {
			return;
		}
		if (leaving) {
			old = broken;
			if (cause == null || cause.isBroken()) { // perhaps before the goodbye has arrived
				leaveWithoutLink();
			} else {
				finish(closed());
			}
		} else if (cause == null) {
			reopen(broken, null);
		} else if (cause.isBroken()) {
			Log.warn("attach stream of session " + sessionId + " broke", cause);
			listener.tell(sessionId, new ConnectionEvent.Disconnected(cause));
			reopen(broken, cause);
		} else {
			finish(cause);
		}
	}

	/** Opens a link in place of an old one, and closes the old one only then. */
	private void reopen(Link before, CopilotException cause) {
		old = before;
		CopilotException first =
				new ConnectionLostException(cause == null ? "the server asks to reconnect" : cause.getMessage());
		boolean refused = cause instanceof UnauthenticatedException; // a replaced token is a reason for one attempt
		retry(new Backoff(connection.reconnect()), refused ? cause : first, cause == null ? first : cause);
	}

	private void retry(Backoff backoff, CopilotException failure, CopilotException last) {
		Optional<Duration> pause = backoff.next(failure);
		if (pause.isEmpty()) {
			finish(last);
			return;
		}
		sync.schedule(() -> {
			if (!ended.isDone() && !leaving) {
				connection.channel().resetConnectBackoff();
				reopenOnce(backoff, last);
			}
		}, pause.get().toNanos(), TimeUnit.NANOSECONDS, connection.timer());
	}

	private void reopenOnce(Backoff backoff, CopilotException last) {
		CompletableFuture<AttachStarted> dial = dial(starts.rejoin(sessionId, token, progress.last()));
		Link opened = dialed;
		var alarm = sync.schedule(
				() -> lost(opened, new DeadlineExceededException("the server does not answer")),
				Connection.SILENCE.toNanos(), TimeUnit.NANOSECONDS, connection.timer());
		dial.whenComplete((started, error) -> {
			alarm.cancel();
			if (ended.isDone()) {
				return;
			}
			if (error == null) {
				closeOld();
				adopt(started);
				if (leaving && link != null) {
					sayGoodbye(false);
					return;
				}
				Log.debug("attach stream restored", sessionId);
				listener.tell(sessionId, new ConnectionEvent.Reconnected(participantId));
				return;
			}
			if (!leaving) {
				reopenFailed(backoff, Errors.of(error), last);
			} else if (goodbye == null) {
				finish(closed()); // there is no participant to leave
			}
		});
	}

	private void reopenFailed(Backoff backoff, CopilotException failure, CopilotException last) {
		if (failure instanceof ParticipantNotFoundException && !token.isEmpty()) {
			token = "";
			listener.tell(sessionId, new ConnectionEvent.ParticipantExpired(participantId));
			retry(backoff, failure, last);
			return;
		}
		if (failure.isBroken()) {
			retry(backoff, failure, last);
		} else {
			finish(failure);
		}
	}

	private void closeOld() {
		if (old != null) {
			old.close();
			old = null;
		}
	}

	private void finish(CopilotException reason) {
		if (ended.isDone()) {
			return;
		}
		Link live = link;
		link = null;
		ended.complete(reason);
		for (Link open : new Link[] {live, dialed}) {
			if (open != null) {
				open.close();
			}
		}
		closeOld();
		if (goodbye != null) {
			goodbye.cancel(true);
		}
		List<CompletableFuture<Link>> waiters = List.copyOf(waiting);
		waiting.clear();
		waiters.forEach(waiter -> waiter.completeExceptionally(reason));
		calls.close();
		commands.linkDown();
		if (models != null) {
			models.close();
		}
	}
}
