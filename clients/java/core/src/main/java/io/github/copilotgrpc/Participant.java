package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.AttachLeave;
import io.github.copilotgrpc.bridge.v1.AttachOpening;
import io.github.copilotgrpc.bridge.v1.AttachRequest;
import io.github.copilotgrpc.bridge.v1.AttachResponse;
import io.github.copilotgrpc.bridge.v1.AttachStart;
import io.github.copilotgrpc.bridge.v1.AttachStarted;
import io.github.copilotgrpc.errors.ConnectionLostException;
import io.github.copilotgrpc.errors.CopilotException;
import io.github.copilotgrpc.errors.DeadlineExceededException;
import io.github.copilotgrpc.errors.ParticipantNotFoundException;
import io.github.copilotgrpc.errors.SessionClosedException;
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
	/** Time for which `leave` waits for the server. */
	private static final Duration LEAVE_TIMEOUT = Duration.ofSeconds(5);

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
				finish(Errors.of(error));
				result.completeExceptionally(Errors.unwrap(error));
			} else {
				adopt(started);
				if (!result.complete(started)) {
					leave(false); // cancelled just now
				}
			}
		}));
		Futures.onCancel(result, () -> {
			opening.cancel(true);
			sync.execute(() -> finish(new SessionClosedException(sessionId, "closed")));
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

	/** Ends the participation without the server. */
	void abandon() {
		sync.execute(() -> finish(new SessionClosedException(sessionId, "closed")));
	}

	/** Replaces the participant's tools, here and on the server. */
	CompletableFuture<Void> setTools(Map<String, Tool> tools) {
		CompletableFuture<Void> result = new CompletableFuture<>();
		sync.execute(() -> Futures.relay(commands.setTools(tools), result));
		return result;
	}

	/** Ends the participation, with a goodbye if there is a link. The future completes when it has ended. */
	CompletableFuture<Void> leave(boolean disconnect) {
		sync.execute(() -> {
			CopilotException closed = new SessionClosedException(sessionId, "closed");
			if (ended.isDone() || leaving) {
				return;
			}
			leaving = true;
			if (link == null) {
				finish(closed);
				return;
			}
			AttachLeave goodbye = AttachLeave.newBuilder().setDisconnect(disconnect).build();
			link.send(AttachRequest.newBuilder().setLeave(goodbye).build());
			sync.schedule(
					() -> finish(closed), LEAVE_TIMEOUT.toNanos(), TimeUnit.NANOSECONDS, connection.timer());
		});
		return ended.thenApply(reason -> null);
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
		if (ended.isDone() || opened.isDown()) {
			if (!ended.isDone()) { // it broke just after its start
				lost(opened, new ConnectionLostException("the attach stream broke"));
			}
			return;
		}
		sessionId = started.getSession().getSessionId();
		participantId = started.getParticipantId();
		token = started.getParticipantToken();
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
			finish(new SessionClosedException(sessionId, "closed"));
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
			if (!ended.isDone()) {
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
				Log.debug("attach stream restored", sessionId);
				listener.tell(sessionId, new ConnectionEvent.Reconnected(participantId));
				return;
			}
			reopenFailed(backoff, Errors.of(error), last);
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
