package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.AttachStart;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.BiFunction;

/**
 * Opens sessions of a client as their participant.
 *
 * @param sessions receives the opened sessions, which leave it when they end
 */
record Opening(Connection connection, Set<CopilotSession> sessions) {
	CompletableFuture<CopilotSession> open(
			HandlerOptions<?> options, boolean isNew, BiFunction<HandlerSet, Handlers, AttachStart> start) {
		HandlerSet given = options.handlerSet();
		Models models = given.models() == null ? null : new Models(given.models(), connection.executor());
		HandlerSet set = models == null ? given : given.with(models);
		Handlers handlers = new Handlers(connection.executor(), set);
		Starts starts = new Starts(connection.name(), set, handlers);
		Participant participant = new Participant(connection, starts, handlers, models, set);
		if (models != null) {
			models.bind(participant::send);
		}
		CompletableFuture<CopilotSession> opening = new CompletableFuture<>();
		Futures.relay(participant.open(start.apply(set, handlers)).thenApply(started -> {
			CopilotSession session =
					new CopilotSession(connection, started.getSession(), participant, isNew, sessions::remove);
			sessions.add(session);
			return session;
		}), opening);
		CompletableFuture<CopilotSession> published = Futures.published(opening, connection.executor());
		Futures.onCancel(published, participant::abandon);
		return published;
	}
}
