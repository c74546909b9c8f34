package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.Answer;
import io.github.copilotgrpc.bridge.v1.ExportSessionHeader;
import io.github.copilotgrpc.bridge.v1.Session;
import io.github.copilotgrpc.bridge.v1.SubscribeResponse;
import io.github.copilotgrpc.errors.CopilotException;
import io.github.copilotgrpc.errors.SessionClosedException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * A session, as a participant or as a handle without tools and handlers. Safe for concurrent use.
 *
 * <p>Methods that wait throw {@link io.github.copilotgrpc.errors.CallInterruptedException} if their thread is
 * interrupted. They hold no monitor, so virtual threads may call them. Futures of methods whose names end in Async
 * are completed by the client's executor; cancelling them cancels the call.
 */
public final class CopilotSession implements AutoCloseable {
	private final Connection connection;
	private final String id;
	private final Participant participant; // null for a handle
	private final SessionInfo info;
	private final Consumer<CopilotSession> forget;
	private final Progress progress;
	private final Sending sending;
	private final Journal journal;
	private final SessionCalls calls;
	private final CompletableFuture<CopilotException> closed = new CompletableFuture<>();

	CopilotSession(
			Connection connection, Session info, Participant participant, boolean isNew,
			Consumer<CopilotSession> forget) {
		this.connection = connection;
		this.id = info.getSessionId();
		this.participant = participant;
		this.info = new SessionInfo(info);
		this.forget = forget;
		this.progress = participant == null ? new Progress() : participant.progress();
		this.sending = new Sending(connection, id, progress);
		Position opened = isNew ? null : Position.of(info.getPosition());
		this.journal = new Journal(connection, id, progress, opened, closed);
		this.calls = new SessionCalls(connection, id, progress);
	}

	Connection connection() {
		return connection;
	}

	Progress progress() {
		return progress;
	}

	/**
	 * Returns the session's id.
	 *
	 * @return the id
	 */
	public String id() {
		return id;
	}

	/**
	 * Returns the session when it was opened; for a handle, only its id. {@link #get()} returns its current state.
	 *
	 * @return the session
	 */
	public SessionInfo info() {
		return info;
	}

	/**
	 * Returns the id of this participant. It changes after a {@link ConnectionEvent.ParticipantExpired}.
	 *
	 * @return the id; empty for a handle
	 */
	public String participantId() {
		return participant == null ? "" : participant.participantId();
	}

	/**
	 * Returns the latest position that this program has seen.
	 *
	 * @return the position; empty before the first one
	 */
	public Optional<Position> position() {
		return progress.last();
	}

	/**
	 * Completes when the participation is over.
	 *
	 * @return completes with the reason
	 */
	public CompletableFuture<CopilotException> ended() {
		return Futures.published((participant == null ? closed : participant.ended()).copy(), connection.executor());
	}

	// Prompts.

	/**
	 * Sends a prompt and returns when the CLI has accepted it.
	 *
	 * @param text the prompt
	 * @return what was accepted
	 * @throws CopilotException the server refused the prompt, or cannot be reached
	 */
	public Receipt send(String text) {
		return send(Prompt.of(text));
	}

	/**
	 * Sends a prompt and returns when the CLI has accepted it.
	 *
	 * @param prompt the prompt
	 * @return what was accepted
	 * @throws CopilotException the server refused the prompt, or cannot be reached
	 * @throws UncheckedIOException an attachment cannot be read
	 */
	public Receipt send(Prompt prompt) {
		return Futures.await(sendAsync(prompt));
	}

	/**
	 * Sends a prompt.
	 *
	 * @param prompt the prompt
	 * @return completes when the CLI has accepted the prompt
	 */
	public CompletableFuture<Receipt> sendAsync(Prompt prompt) {
		return sending.send(prompt.traced());
	}

	/**
	 * Sends a prompt and waits until the turn has ended. A turn that fails is an outcome, not an exception.
	 *
	 * @param text the prompt
	 * @return the end of the turn
	 * @throws CopilotException the server refused the prompt, or cannot be reached
	 */
	public Outcome sendAndWait(String text) {
		return sendAndWait(Prompt.of(text));
	}

	/**
	 * Sends a prompt and waits until the turn has ended. A turn that fails is an outcome, not an exception.
	 *
	 * @param prompt the prompt
	 * @return the end of the turn
	 * @throws CopilotException the server refused the prompt, or cannot be reached
	 * @throws UncheckedIOException an attachment cannot be read
	 */
	public Outcome sendAndWait(Prompt prompt) {
		return Futures.await(sendAndWaitAsync(prompt));
	}

	/**
	 * Sends a prompt.
	 *
	 * @param prompt the prompt
	 * @return completes when the turn has ended
	 */
	public CompletableFuture<Outcome> sendAndWaitAsync(Prompt prompt) {
		CompletableFuture<Outcome> result = sending.sendAndWait(prompt.traced());
		if (prompt.isAbortedOnCancel()) {
			Futures.onCancel(result, sending::abortDetached);
		}
		return result;
	}

	/**
	 * Prepares to send a prompt and to read its turn. Reading the turn sends the prompt.
	 *
	 * @param text the prompt
	 * @return the turn
	 */
	public Turn run(String text) {
		return run(Prompt.of(text));
	}

	/**
	 * Prepares to send a prompt and to read its turn. Reading the turn sends the prompt.
	 *
	 * @param prompt the prompt
	 * @return the turn
	 */
	public Turn run(Prompt prompt) {
		return new Turn(this, prompt);
	}

	/**
	 * Stops the running turn and removes queued prompts.
	 *
	 * @return whether a turn was running
	 */
	public boolean abort() {
		return Futures.await(abortAsync());
	}

	/**
	 * Stops the running turn and removes queued prompts.
	 *
	 * @return completes with whether a turn was running
	 */
	public CompletableFuture<Boolean> abortAsync() {
		return Futures.published(sending.abort(), connection.executor());
	}

	/** Aborts without a wait, after a cancellation. */
	void abortDetached() {
		sending.abortDetached();
	}

	// Events.

	/**
	 * Reads the session's events from the position where this program opened the session; see {@link
	 * #events(EventQuery)}.
	 *
	 * @return the events
	 */
	public ItemStream<StreamItem> events() {
		return events(EventQuery.all());
	}

	/**
	 * Reads the session's events: past ones, then live ones, until the session or this participation is over. The
	 * stream continues after broken connections, without duplicates. Missing events appear as a {@link Gap}.
	 *
	 * @param query which events, and from where
	 * @return the events
	 */
	public ItemStream<StreamItem> events(EventQuery query) {
		return journal.events(query);
	}

	/**
	 * Reads all frames of the stream of events: the end of the replay, ends of turns, restarts, and pending callbacks.
	 *
	 * @param query which events, and from where
	 * @return the frames
	 */
	public ItemStream<SubscribeResponse> frames(EventQuery query) {
		return journal.frames(query);
	}

	/**
	 * Reads the events that the journal has, from the first one, or after the query's position, up to the last one.
	 *
	 * @param query which events
	 * @return the events
	 */
	public ItemStream<StreamItem> history(EventQuery query) {
		return journal.history(query);
	}

	/**
	 * Reads the whole JSON of an event, for one that was truncated.
	 *
	 * @param position the event's position
	 * @return the JSON
	 */
	public String readEvent(Position position) {
		return Futures.await(journal.read(position)).toStringUtf8();
	}

	/**
	 * Writes the session as an archive, from which {@link CopilotClient#importSession} makes a session on another server.
	 * No turn may run. The archive has the conversation, and no secrets of the configuration.
	 *
	 * @param file the file to write, which must not exist. After an error there is no file
	 * @return size, digest and position of the archive, and the secrets that it lacks
	 * @throws CopilotException the server refused the export, or the archive did not arrive as a whole
	 * @throws UncheckedIOException the file cannot be written
	 */
	public ExportSessionHeader exportTo(Path file) {
		return Futures.await(exportToAsync(file));
	}

	/**
	 * Writes the session as an archive; see {@link #exportTo(Path)}.
	 *
	 * @param file the file to write, which must not exist. After an error or a cancellation there is no file
	 * @return completes when the archive is written
	 */
	public CompletableFuture<ExportSessionHeader> exportToAsync(Path file) {
		return new Transfer(connection).exportTo(id, file);
	}

	/**
	 * Writes the session as an archive; see {@link #exportTo(Path)}.
	 *
	 * @param out receives the archive, and is not closed. After an error its bytes are of no use
	 * @return size, digest and position of the archive, and the secrets that it lacks
	 * @throws CopilotException the server refused the export, or the archive did not arrive as a whole
	 * @throws UncheckedIOException the archive cannot be written
	 */
	public ExportSessionHeader exportTo(OutputStream out) {
		return Futures.await(exportToAsync(out));
	}

	/**
	 * Writes the session as an archive; see {@link #exportTo(Path)}.
	 *
	 * @param out receives the archive in a thread of the client's executor, and is not closed
	 * @return completes when the archive is written
	 */
	public CompletableFuture<ExportSessionHeader> exportToAsync(OutputStream out) {
		return new Transfer(connection).exportTo(id, out);
	}

	/**
	 * Returns the session's current state.
	 *
	 * @return the session
	 */
	public SessionInfo get() {
		return calls.get();
	}

	/**
	 * Changes the model from the next turn on.
	 *
	 * @param modelId the model's id
	 * @return the model in use; empty if the CLI does not report it
	 */
	public String setModel(String modelId) {
		return calls.setModel(modelId);
	}

	/**
	 * Changes labels of the session.
	 *
	 * @param set labels to add or replace
	 * @param remove names of labels to remove
	 * @return all labels of the session
	 */
	public Map<String, String> updateLabels(Map<String, String> set, Collection<String> remove) {
		return calls.updateLabels(set, remove);
	}

	/**
	 * Writes a line to the session's timeline, for its users, not for the model.
	 *
	 * @param message the line
	 * @return id of the resulting event
	 */
	public String log(String message) {
		return calls.log(message);
	}

	/**
	 * Returns the pending callbacks.
	 *
	 * @return the callbacks, oldest first
	 */
	public List<PendingCallback> pending() {
		return calls.pending();
	}

	/**
	 * Answers any callback of the session.
	 *
	 * @param callbackId the callback
	 * @param answer see {@link Answers}
	 */
	public void resolve(String callbackId, Answer answer) {
		Futures.await(PendingCallback.resolve(connection, id, callbackId, answer, progress));
	}

	/**
	 * Replaces this participant's tools. Running calls continue.
	 *
	 * @param tools the new tools
	 * @throws IllegalStateException this is a handle
	 * @throws IllegalArgumentException two tools have the same name
	 */
	public void setTools(Tool... tools) {
		if (participant == null) {
			throw new IllegalStateException("a handle has no tools: join the session");
		}
		Futures.await(participant.setTools(Tool.byName(List.of(tools))));
	}

	/**
	 * Leaves the session, also while its connection is broken: its tools go, its handlers are interrupted, its streams of
	 * events end. The session continues unless its lifetime ends with its last participant. Closing again does nothing.
	 * Waits up to {@link ClientBuilder#closeTimeout} for the server; an interrupted thread does not wait.
	 */
	@Override
	public void close() {
		end(false);
	}

	/**
	 * Leaves the session and closes it in the server, unless other participants are attached: its turn is aborted,
	 * and only {@link CopilotClient#resumeSession} opens it again. Its history stays.
	 */
	public void disconnect() {
		if (participant == null || participant.ended().isDone()) {
			calls.disconnect();
			end(false);
		} else {
			Futures.await(participant.whenLive()); // a participant whose stream is broken still counts
			end(true);
		}
	}

	/** Deletes the session and its history. */
	public void delete() {
		calls.delete();
		end(false);
	}

	private void end(boolean disconnect) {
		Futures.awaitQuietly(leave(disconnect));
	}

	/** Begins to leave, and returns when that has ended. */
	CompletableFuture<Void> leave(boolean disconnect) {
		forget.accept(this);
		closed.complete(new SessionClosedException(id, "closed"));
		return participant == null ? CompletableFuture.completedFuture(null) : participant.leave(disconnect);
	}
}
