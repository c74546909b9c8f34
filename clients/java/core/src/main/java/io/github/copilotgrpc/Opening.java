package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.AttachStart;
import io.github.copilotgrpc.errors.SessionExistsException;
import io.github.copilotgrpc.errors.SessionNotFoundException;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;

/**
 * Opens sessions of a client as their participant.
 *
 * @param sessions receives the opened sessions, which leave it when they end
 */
record Opening(Connection connection, Set<CopilotSession> sessions) {
	/** How often a session is resumed, or created, while other callers create and delete it. */
	private static final int MAX_ATTEMPTS = 10;
	/** The longest pause before a session is resumed again, in milliseconds. */
	private static final int MAX_PAUSE = 100;

	/** Creates a session; an empty id is for a random one. */
	CompletableFuture<CopilotSession> create(String id, SessionOptions options) {
		return open(options, true, (set, handlers) -> options.create(id, set, handlers));
	}

	CompletableFuture<CopilotSession> resume(String id, SessionOptions options) {
		return open(options, false, (set, handlers) -> options.resume(id, set, handlers));
	}

	CompletableFuture<CopilotSession> join(String id, ParticipantOptions options) {
		return open(options, false, (set, handlers) -> AttachStart.newBuilder().setJoinSessionId(id).build());
	}

	/** Resumes a session, or creates it if there is none. */
	CompletableFuture<CopilotSession> resumeOrCreate(String id, SessionOptions options) {
		CompletableFuture<CopilotSession> result = new CompletableFuture<>();
		resumeOrCreate(id, options, 1, result);
		return result;
	}

	private void resumeOrCreate(
			String id, SessionOptions options, int attempt, CompletableFuture<CopilotSession> result) {
		boolean resumes = attempt % 2 == 1;
		CompletableFuture<CopilotSession> opening = resumes ? resume(id, options) : create(id, options);
		opening.whenComplete((session, failure) -> {
			Throwable error = failure == null ? null : Errors.unwrap(failure);
			boolean again = resumes ? error instanceof SessionNotFoundException : error instanceof SessionExistsException;
			if (again && attempt < MAX_ATTEMPTS) {
				// Two callers whose attempts alternate must get out of step.
				int pause = resumes ? 0 : ThreadLocalRandom.current().nextInt(MAX_PAUSE);
				connection.timer().schedule(
						() -> resumeOrCreate(id, options, attempt + 1, result), pause, TimeUnit.MILLISECONDS);
			} else {
				Futures.relay(opening, result);
			}
		});
		Futures.onCancel(result, () -> opening.cancel(true));
	}

	private CompletableFuture<CopilotSession> open(
			HandlerOptions<?> options, boolean isNew, BiFunction<HandlerSet, Handlers, AttachStart> start) {
		HandlerSet given = options.handlerSet();
		Models models = given.models() == null ? null : new Models(given.models(), connection.executor());
		HandlerSet set = models == null ? given : given.with(models);
		Handlers handlers = new Handlers(connection.executor(), set);
		Starts starts = new Starts(connection.name(), set, handlers);
		Participant participant = new Participant(connection, starts, handlers, models, set);
		if (models != null) {
			models.bind(participant);
		}
		CompletableFuture<CopilotSession> opening = Futures.map(participant.open(start.apply(set, handlers)), started -> {
			CopilotSession session =
					new CopilotSession(connection, started.getSession(), participant, isNew, sessions::remove);
			sessions.add(session);
			return session;
		});
		CompletableFuture<CopilotSession> published = Futures.published(opening, connection.executor());
		Futures.onCancel(published, () -> participant.leave(false));
		return published;
	}
}
