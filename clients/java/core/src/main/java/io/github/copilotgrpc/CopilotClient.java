package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.DeleteSessionRequest;
import io.github.copilotgrpc.bridge.v1.GetAuthStatusRequest;
import io.github.copilotgrpc.bridge.v1.GetAuthStatusResponse;
import io.github.copilotgrpc.bridge.v1.GetLastSessionRequest;
import io.github.copilotgrpc.bridge.v1.GetServerInfoRequest;
import io.github.copilotgrpc.bridge.v1.GetServerInfoResponse;
import io.github.copilotgrpc.bridge.v1.GetSessionRequest;
import io.github.copilotgrpc.bridge.v1.GetUsageRequest;
import io.github.copilotgrpc.bridge.v1.ImportSessionHeader;
import io.github.copilotgrpc.bridge.v1.ImportSessionResponse;
import io.github.copilotgrpc.bridge.v1.ListModelsRequest;
import io.github.copilotgrpc.bridge.v1.ListSessionsRequest;
import io.github.copilotgrpc.bridge.v1.PingRequest;
import io.github.copilotgrpc.bridge.v1.PingResponse;
import io.github.copilotgrpc.bridge.v1.RuntimeServiceGrpc;
import io.github.copilotgrpc.bridge.v1.Session;
import io.github.copilotgrpc.bridge.v1.SessionFilter;
import io.github.copilotgrpc.bridge.v1.SessionServiceGrpc;
import io.github.copilotgrpc.bridge.v1.UsageRow;
import io.github.copilotgrpc.bridge.v1.WatchSessionsRequest;
import io.github.copilotgrpc.cli.v1.Model;
import io.github.copilotgrpc.errors.CopilotException;
import io.github.copilotgrpc.internal.ServerProcess;
import io.grpc.Channel;
import io.grpc.MethodDescriptor;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A client of one server. Safe for concurrent use.
 *
 * <p>Methods that wait throw {@link io.github.copilotgrpc.errors.CallInterruptedException} if their thread is
 * interrupted, and hold no monitor, so virtual threads may call them.
 */
public final class CopilotClient implements AutoCloseable {
	private final Connection connection;
	private final ServerProcess server; // null unless this client started one
	private final Runnable release;
	private final Set<CopilotSession> sessions = ConcurrentHashMap.newKeySet();
	private final Opening opening;

	CopilotClient(Connection connection, ServerProcess server, Runnable release) {
		this.connection = connection;
		this.server = server;
		this.release = release;
		this.opening = new Opening(connection, sessions);
	}

	/**
	 * Connects to the server of COPILOT_GRPC_TARGET; else to the default socket of {@code copilot-grpc serve}, if a
	 * server listens there; else to a private server.
	 *
	 * @return the client
	 * @throws CopilotException see {@link ClientBuilder#connect()}
	 */
	public static CopilotClient connect() {
		return builder().connect();
	}

	/**
	 * Connects to a server.
	 *
	 * @param target {@code unix:PATH}, {@code HOST:PORT}, or another target of gRPC
	 * @return the client
	 * @throws CopilotException see {@link ClientBuilder#connect()}
	 */
	public static CopilotClient connect(String target) {
		return builder().target(target).connect();
	}

	/**
	 * Returns the settings of a client, for all other cases.
	 *
	 * @return the builder
	 */
	public static ClientBuilder builder() {
		return new ClientBuilder();
	}

	/** Leaves all sessions, closes the channel, and ends a private server. Closing again does nothing. */
	@Override
	public void close() {
		// All at once: the time limit is for all of them.
		List.copyOf(sessions).stream().map(session -> session.leave(false)).toList().forEach(Futures::awaitQuietly);
		release.run();
		if (server != null) {
			server.stop();
		}
	}

	/**
	 * Returns the channel, with the client's token, for stubs of {@code copilot.cli.v1}.
	 *
	 * @return the channel
	 */
	public Channel channel() {
		return connection.authorized();
	}

	/**
	 * Returns the server's version, capabilities and limits.
	 *
	 * @return the server
	 */
	public GetServerInfoResponse serverInfo() {
		return call(RuntimeServiceGrpc.getGetServerInfoMethod(), GetServerInfoRequest.getDefaultInstance());
	}

	// Sessions.

	/**
	 * Creates a session and joins it. Leaving the session does not end it unless its lifetime says so.
	 *
	 * @param options tools, handlers and configuration
	 * @return the session
	 * @throws CopilotException the server refused the session, or cannot be reached
	 */
	public CopilotSession createSession(SessionOptions options) {
		return Futures.await(createSessionAsync(options));
	}

	/**
	 * Creates a session with the server's defaults and joins it.
	 *
	 * @return the session
	 * @throws CopilotException the server refused the session, or cannot be reached
	 */
	public CopilotSession createSession() {
		return createSession(new SessionOptions());
	}

	/**
	 * Creates a session and joins it.
	 *
	 * @param options tools, handlers and configuration
	 * @return completes with the session
	 */
	public CompletableFuture<CopilotSession> createSessionAsync(SessionOptions options) {
		return opening.create(options.sessionId(), options);
	}

	/**
	 * Opens a session, from the CLI's history if necessary, and joins it. Adds a session.resume event.
	 *
	 * @param sessionId the session
	 * @param options tools, handlers, and changes of the configuration; labels and node labels do not change
	 * @return the session
	 * @throws CopilotException the server refused the session, or cannot be reached
	 */
	public CopilotSession resumeSession(String sessionId, SessionOptions options) {
		return Futures.await(resumeSessionAsync(sessionId, options));
	}

	/**
	 * Opens a session, from the CLI's history if necessary, and joins it.
	 *
	 * @param sessionId the session
	 * @param options tools, handlers, and changes of the configuration
	 * @return completes with the session
	 */
	public CompletableFuture<CopilotSession> resumeSessionAsync(String sessionId, SessionOptions options) {
		return opening.resume(sessionId, options);
	}

	/**
	 * Opens the session with an id, in whatever state it is, or creates it if there is none, and joins it. Programs that
	 * do so at the same time get the same session.
	 *
	 * @param sessionId the session: letters, digits, '-' and '_', at most 128 characters
	 * @param options tools, handlers and configuration; labels and node labels matter only for a new session
	 * @return the session
	 * @throws CopilotException the server refused the session, or cannot be reached
	 */
	public CopilotSession openSession(String sessionId, SessionOptions options) {
		return Futures.await(openSessionAsync(sessionId, options));
	}

	/**
	 * Opens the session with an id, or creates it if there is none; see {@link #openSession}.
	 *
	 * @param sessionId the session
	 * @param options tools, handlers and configuration
	 * @return completes with the session
	 */
	public CompletableFuture<CopilotSession> openSessionAsync(String sessionId, SessionOptions options) {
		return opening.resumeOrCreate(sessionId, options);
	}

	/**
	 * Joins an open session, without a trace in its history.
	 *
	 * @param sessionId the session
	 * @param options tools and handlers
	 * @return the session
	 * @throws CopilotException the server refused the participant, or cannot be reached
	 */
	public CopilotSession joinSession(String sessionId, ParticipantOptions options) {
		return Futures.await(joinSessionAsync(sessionId, options));
	}

	/**
	 * Joins an open session, without a trace in its history.
	 *
	 * @param sessionId the session
	 * @param options tools and handlers
	 * @return completes with the session
	 */
	public CompletableFuture<CopilotSession> joinSessionAsync(String sessionId, ParticipantOptions options) {
		return opening.join(sessionId, options);
	}

	/**
	 * Returns a handle on a session: it sends, watches and resolves, and has no tools and handlers. Makes no call.
	 *
	 * @param sessionId the session
	 * @return the handle
	 */
	public CopilotSession session(String sessionId) {
		Session message = Session.newBuilder().setSessionId(sessionId).build();
		CopilotSession session = new CopilotSession(connection, message, null, true, sessions::remove);
		sessions.add(session);
		return session;
	}

	/**
	 * Creates a session for one prompt, waits for the end of its turn, and deletes the session.
	 *
	 * @param prompt the prompt
	 * @param options tools, handlers and configuration
	 * @return the end of the turn
	 * @throws CopilotException the server refused the session or the prompt, or cannot be reached
	 */
	public Outcome run(Prompt prompt, SessionOptions options) {
		try (CopilotSession session = createSession(options)) {
			Outcome outcome = session.sendAndWait(prompt.abortOnCancel());
			session.delete();
			return outcome;
		}
	}

	/**
	 * Returns the state of a session.
	 *
	 * @param sessionId the session
	 * @return the session
	 */
	public SessionInfo getSession(String sessionId) {
		GetSessionRequest request = GetSessionRequest.newBuilder().setSessionId(sessionId).build();
		return new SessionInfo(call(SessionServiceGrpc.getGetSessionMethod(), request).getSession());
	}

	/**
	 * Reads the caller's sessions, most recently used first.
	 *
	 * @return the sessions
	 */
	public ItemStream<SessionInfo> listSessions() {
		return listSessions(SessionFilter.getDefaultInstance());
	}

	/**
	 * Reads the caller's sessions that match a filter, most recently used first.
	 *
	 * @param filter labels, states, tenant and other conditions
	 * @return the sessions
	 */
	public ItemStream<SessionInfo> listSessions(SessionFilter filter) {
		return listSessions(ListSessionsRequest.newBuilder().setFilter(filter).build());
	}

	/**
	 * Reads the sessions that a request selects, most recently used first. {@code include_history} adds those of the CLI's
	 * history that were never opened through the server, such as those of a person at a terminal with the same home.
	 *
	 * @param request the filter and the other choices
	 * @return the sessions
	 */
	public ItemStream<SessionInfo> listSessions(ListSessionsRequest request) {
		return new Lists(connection).sessions(request);
	}

	/**
	 * Returns the id of the most recently used session.
	 *
	 * @return the id; empty if there is none
	 */
	public String lastSessionId() {
		return call(SessionServiceGrpc.getGetLastSessionMethod(), GetLastSessionRequest.getDefaultInstance())
				.getSessionId();
	}

	/**
	 * Deletes a session and its history.
	 *
	 * @param sessionId the session
	 */
	public void deleteSession(String sessionId) {
		DeleteSessionRequest request = DeleteSessionRequest.newBuilder().setSessionId(sessionId).build();
		call(SessionServiceGrpc.getDeleteSessionMethod(), request);
	}

	/**
	 * Makes a session of an archive that {@link CopilotSession#exportTo} wrote. {@link #resumeSession} opens the session,
	 * with the secrets, tools and handlers that archives lack. The call has no time limit, and is not repeated.
	 *
	 * @param archive the archive, which a thread of the client's executor reads. It is not closed
	 * @param header id, configuration and provider of the new session; those it lacks are the archive's
	 * @return the new session, the id of the exported one, and the secrets that the session lacks
	 * @throws CopilotException the server refused the archive, and nothing is left of the import; or the connection broke
	 * @throws UncheckedIOException the archive cannot be read
	 */
	public ImportSessionResponse importSession(InputStream archive, ImportSessionHeader header) {
		return Futures.await(importSessionAsync(archive, header));
	}

	/**
	 * Makes a session of an archive; see {@link #importSession(InputStream, ImportSessionHeader)}.
	 *
	 * @param archive the archive, which a thread of the client's executor reads. It is not closed
	 * @param header id, configuration and provider of the new session; those it lacks are the archive's
	 * @return completes with the new session
	 */
	public CompletableFuture<ImportSessionResponse> importSessionAsync(InputStream archive, ImportSessionHeader header) {
		return new Transfer(connection).importFrom(archive, header);
	}

	/**
	 * Reads changes of the caller's sessions: first one for each open session, then changes as they happen. After a
	 * broken connection the stream begins again with the open sessions.
	 *
	 * @return the changes
	 */
	public ItemStream<SessionChange> watchSessions() {
		return watchSessions(WatchSessionsRequest.getDefaultInstance());
	}

	/**
	 * Reads changes of the caller's sessions, like {@link #watchSessions()}, with a filter and other options. Heartbeats
	 * are left out.
	 *
	 * @param request filter and options
	 * @return the changes
	 */
	public ItemStream<SessionChange> watchSessions(WatchSessionsRequest request) {
		return new Lists(connection).changes(request);
	}

	/**
	 * Reports what the models of sessions were used for. Without a session it sums all sessions that the caller can see.
	 *
	 * @param request sessions, time, and the groups of the rows
	 * @return the rows
	 */
	public List<UsageRow> usage(GetUsageRequest request) {
		return call(SessionServiceGrpc.getGetUsageMethod(), request).getRowsList();
	}

	// The server.

	/**
	 * Pings the CLI, and starts it if it does not run.
	 *
	 * @return the CLI's answer
	 */
	public PingResponse ping() {
		return call(RuntimeServiceGrpc.getPingMethod(), PingRequest.getDefaultInstance());
	}

	/**
	 * Reports whether the CLI is signed in to GitHub, and as whom.
	 *
	 * @return the status
	 */
	public GetAuthStatusResponse authStatus() {
		return call(RuntimeServiceGrpc.getGetAuthStatusMethod(), GetAuthStatusRequest.getDefaultInstance());
	}

	/**
	 * Returns the models of the signed-in account.
	 *
	 * @return the models
	 */
	public List<Model> listModels() {
		return call(RuntimeServiceGrpc.getListModelsMethod(), ListModelsRequest.getDefaultInstance()).getModelsList();
	}

	/**
	 * Reads the pending callbacks of all sessions, oldest first.
	 *
	 * @return the callbacks
	 */
	public ItemStream<PendingCallback> pending() {
		return new Lists(connection).pending();
	}

	/**
	 * Watches the callbacks that wait in all sessions, present and future: first each that waits, oldest first, then
	 * changes as they happen. A broken stream is opened again.
	 *
	 * @param query which callbacks, and whether to handle them
	 * @return the changes, without an end
	 */
	public ItemStream<PendingChange> watchPending(PendingQuery query) {
		return new ItemStream<>(Inbox.watch(connection, query), connection.executor());
	}

	private <Q, A> A call(MethodDescriptor<Q, A> method, Q request) {
		return Futures.await(connection.unary(method, request, null));
	}
}
