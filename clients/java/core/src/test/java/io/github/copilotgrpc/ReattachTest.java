package io.github.copilotgrpc;

import static io.github.copilotgrpc.FakeServer.position;
import static io.github.copilotgrpc.FakeServer.refusal;
import static io.github.copilotgrpc.FakeServer.soon;
import static io.github.copilotgrpc.FakeServer.toolCallback;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.copilotgrpc.FakeServer.Attached;
import io.github.copilotgrpc.bridge.v1.AttachOpening;
import io.github.copilotgrpc.bridge.v1.AttachResponse;
import io.github.copilotgrpc.bridge.v1.CloseReason;
import io.github.copilotgrpc.bridge.v1.GoAway;
import io.github.copilotgrpc.bridge.v1.GoAwayReason;
import io.github.copilotgrpc.bridge.v1.LeaveResponse;
import io.github.copilotgrpc.bridge.v1.SubscribeResponse;
import io.github.copilotgrpc.errors.SessionClosedException;
import io.github.copilotgrpc.errors.UnauthenticatedException;
import io.grpc.Status;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The Attach stream: reconnection and the end. */
class ReattachTest {
	private record Weather(String city, Optional<Integer> days) {}

	private record Nothing() {}

	private static final Tool WEATHER = Tool.of("weather", "Tells the weather.", Weather.class,
			query -> "rain in " + query.city() + " for " + query.days().orElse(1));

	private FakeServer fake;
	private CopilotClient client;
	private Attached stream;

	@BeforeEach
	void connect() throws Exception {
		fake = new FakeServer();
		client = fake.builder().name("tests").connect();
	}

	@AfterEach
	void close() throws Exception {
		fake.close();
		client.close();
	}

	private CopilotSession open(SessionOptions options) throws Exception {
		CompletableFuture<CopilotSession> opening = client.createSessionAsync(options);
		stream = fake.attached();
		return soon(opening);
	}

	private static SessionOptions with(Tool... tools) {
		return new SessionOptions().tools(tools);
	}

	@Test
	void reattachReturnsWithTheTokenAndRepeatsTheAnswer() throws Exception {
		AtomicInteger runs = new AtomicInteger();
		BlockingQueue<ConnectionEvent> changes = new LinkedBlockingQueue<>();
		open(with(Tool.of("count", "Counts.", Nothing.class, nothing -> "run " + runs.incrementAndGet()))
				.onConnection(changes::add));
		stream.ask(toolCallback("c", "count", "{}"));
		assertEquals("run 1", stream.answer().getAnswer().getTool().getText());
		stream.cut(Status.Code.UNAVAILABLE); // before it has acknowledged the answer
		Attached second = fake.attached(toolCallback("c", "count", "{}").toBuilder().addParticipantIds("p1").build());
		assertEquals("secret", second.request.getParticipantToken());
		assertEquals("s1", second.request.getJoinSessionId());
		assertEquals(position(1, 3), second.request.getAfter());
		assertEquals("count", second.request.getTools(0).getName());
		assertEquals("run 1", second.answer().getAnswer().getTool().getText());
		second.done("c");
		second.ask(toolCallback("d", "count", "{}"));
		assertEquals("run 2", second.answer().getAnswer().getTool().getText());
		assertInstanceOf(ConnectionEvent.Disconnected.class, soon(changes));
		assertEquals(new ConnectionEvent.Reconnected("p1"), soon(changes));
	}

	@ParameterizedTest
	@EnumSource(value = Status.Code.class, names = {"CANCELLED", "INTERNAL", "UNKNOWN", "ABORTED", "UNAVAILABLE"})
	void aStatusWithoutAReasonIsABrokenConnection(Status.Code code) throws Exception {
		CopilotSession session = open(new SessionOptions());
		stream.cut(code);
		fake.attached();
		assertFalse(session.ended().isDone());
	}

	@Test
	void expiredParticipantJoinsAgain() throws Exception {
		BlockingQueue<ConnectionEvent> changes = new LinkedBlockingQueue<>();
		CopilotSession session = open(new SessionOptions().onConnection(changes::add));
		fake.refusals.add(refusal(Status.Code.NOT_FOUND, "PARTICIPANT_NOT_FOUND", "expired", "token"));
		stream.cut(Status.Code.UNAVAILABLE);
		Attached second = soon(fake.attaches);
		second.start("p2");
		assertEquals("", second.request.getParticipantToken());
		assertInstanceOf(ConnectionEvent.Disconnected.class, soon(changes));
		assertEquals(new ConnectionEvent.ParticipantExpired("p1"), soon(changes));
		assertEquals(new ConnectionEvent.Reconnected("p2"), soon(changes));
		assertEquals("p2", session.participantId());
	}

	@Test
	void goAwayOpensTheNextStreamBeforeTheOldOneEnds() throws Exception {
		open(with(WEATHER));
		stream.tell(SubscribeResponse.newBuilder().setGoAway(
				GoAway.newBuilder().setReason(GoAwayReason.GO_AWAY_REASON_CONNECTION_AGE)));
		Attached second = soon(fake.attaches);
		assertFalse(stream.gone.isDone());
		second.start("p1");
		soon(stream.gone);
		second.ask(toolCallback("c", "weather", "{\"city\": \"Kyiv\"}"));
		assertEquals("c", second.answer().getCallbackId());
	}

	@Test
	void expiredStaticTokenEndsTheParticipation() throws Exception {
		CopilotSession session = open(new SessionOptions());
		fake.refusals.add(refusal(Status.Code.UNAUTHENTICATED, "UNAUTHENTICATED", "expired", ""));
		stream.cut(Status.Code.UNAVAILABLE);
		assertInstanceOf(UnauthenticatedException.class, soon(session.ended()));
	}

	@Test
	void changedTokenOpensTheStreamAgain() throws Exception {
		AtomicInteger reads = new AtomicInteger();
		try (CopilotClient other = fake.builder().token(() -> "token " + reads.incrementAndGet()).connect()) {
			BlockingQueue<ConnectionEvent> changes = new LinkedBlockingQueue<>();
			CompletableFuture<CopilotSession> opening =
					other.createSessionAsync(new SessionOptions().onConnection(changes::add));
			stream = fake.attached();
			CopilotSession session = soon(opening);
			fake.refusals.add(refusal(Status.Code.UNAUTHENTICATED, "UNAUTHENTICATED", "expired", ""));
			stream.cut(Status.Code.UNAVAILABLE);
			stream = fake.attached(); // each token differs from the one before
			assertInstanceOf(ConnectionEvent.Disconnected.class, soon(changes));
			assertInstanceOf(ConnectionEvent.Reconnected.class, soon(changes));
			CompletableFuture<Void> closing = CompletableFuture.runAsync(session::close);
			stream.goodbye();
			soon(closing);
		}
	}

	@ParameterizedTest
	@EnumSource(value = CloseReason.class, names = {
		"CLOSE_REASON_DISCONNECTED", "CLOSE_REASON_DELETED", "CLOSE_REASON_REPLACED", "CLOSE_REASON_UNSHARED"})
	void closedByTheServer(CloseReason reason) throws Exception {
		CopilotSession session = open(new SessionOptions());
		stream.closed(reason);
		SessionClosedException ended = assertInstanceOf(SessionClosedException.class, soon(session.ended()));
		assertEquals(reason.name().substring("CLOSE_REASON_".length()).toLowerCase(Locale.ROOT),
				ended.closeReason());
	}

	@Test
	void closeLeavesAndDisconnectSaysSo() throws Exception {
		CopilotSession session = open(new SessionOptions());
		CompletableFuture<Void> closing = CompletableFuture.runAsync(session::close);
		assertFalse(stream.goodbye());
		soon(closing);
		assertEquals("closed", assertInstanceOf(SessionClosedException.class, soon(session.ended())).closeReason());
		session.close();

		CopilotSession other = open(new SessionOptions());
		CompletableFuture<Void> disconnecting = CompletableFuture.runAsync(other::disconnect);
		assertTrue(stream.goodbye());
		soon(disconnecting);
	}

	/** A client that waits as long as the test for the server's answer to its leaving. */
	private CopilotSession openPatiently(Reconnect reconnect) throws Exception {
		client.close();
		client = fake.builder().closeTimeout(FakeServer.PATIENCE).reconnect(reconnect).connect();
		return open(with(WEATHER));
	}

	private void acceptLeave() throws Exception {
		var leave = soon(fake.leaves);
		assertEquals("s1", leave.request.getSessionId());
		assertEquals("secret", leave.request.getParticipantToken());
		leave.send(LeaveResponse.getDefaultInstance());
		leave.end();
	}

	@Test
	void closeDuringBackOffLeavesWithTheToken() throws Exception {
		Duration never = FakeServer.PATIENCE.multipliedBy(1000);
		CopilotSession session = openPatiently(new Reconnect(never, never, never.multipliedBy(2)));
		stream.cut(Status.Code.UNAVAILABLE);
		CompletableFuture<Void> closing = CompletableFuture.runAsync(session::close);
		soon(fake.leaves).cut(Status.Code.UNAVAILABLE); // the server is not back yet
		acceptLeave();
		soon(closing);
		assertTrue(fake.attaches.isEmpty());
		assertEquals("closed", assertInstanceOf(SessionClosedException.class, soon(session.ended())).closeReason());
	}

	@Test
	void closeOfASessionThatIsGoneIsQuiet() throws Exception {
		Duration never = FakeServer.PATIENCE.multipliedBy(1000);
		CopilotSession session = openPatiently(new Reconnect(never, never, never.multipliedBy(2)));
		stream.cut(Status.Code.UNAVAILABLE);
		try (Logged logged = new Logged()) {
			CompletableFuture<Void> closing = CompletableFuture.runAsync(session::close);
			soon(fake.leaves).fail(refusal(Status.Code.NOT_FOUND, "SESSION_NOT_FOUND", "no session", "session_id"));
			soon(closing);
			assertTrue(logged.lines().stream().noneMatch(line -> line.contains("without the server")), logged.lines()::toString);
		}
	}

	@Test
	void closeWhileTheNextStreamIsBeingOpenedLeavesWithTheToken() throws Exception {
		CopilotSession session = openPatiently(FakeServer.QUICKLY);
		stream.cut(Status.Code.UNAVAILABLE);
		Attached second = soon(fake.attaches);
		CompletableFuture<Void> closing = CompletableFuture.runAsync(session::close);
		soon(second.gone);
		acceptLeave();
		soon(closing);
	}

	@Test
	void closeWhoseGoodbyeIsLostLeavesWithTheToken() throws Exception {
		CopilotSession session = openPatiently(FakeServer.QUICKLY);
		CompletableFuture<Void> closing = CompletableFuture.runAsync(session::close);
		assertTrue(stream.next().hasLeave());
		stream.cut(Status.Code.UNAVAILABLE);
		acceptLeave();
		soon(closing);
		assertTrue(fake.attaches.isEmpty());
	}

	@Test
	void closeAfterTheParticipantExpiredLeavesOnTheNextStream() throws Exception {
		CopilotSession session = openPatiently(FakeServer.QUICKLY);
		fake.refusals.add(refusal(Status.Code.NOT_FOUND, "PARTICIPANT_NOT_FOUND", "expired", "token"));
		stream.cut(Status.Code.UNAVAILABLE);
		Attached second = soon(fake.attaches);
		assertEquals("", second.request.getParticipantToken());
		CompletableFuture<Void> closing = CompletableFuture.runAsync(session::close);
		second.start("p2");
		assertFalse(second.goodbye());
		soon(closing);
		assertTrue(fake.leaves.isEmpty());
	}

	@Test
	void cancelledOpeningLeavesWithTheToken() throws Exception {
		CompletableFuture<CopilotSession> opening = client.createSessionAsync(new SessionOptions());
		Attached first = soon(fake.attaches);
		first.send(AttachResponse.newBuilder().setOpening(AttachOpening.newBuilder()
				.setParticipantId("p1").setParticipantToken("secret").setSessionId("s1")).build());
		first.ask(toolCallback("c", "none", "{}")); // answered after the frame before it
		assertTrue(first.answer().getAnswer().hasAbstain());
		opening.cancel(true);
		soon(first.gone);
		acceptLeave();
	}

	@Test
	void closeGivesUpWhenTheServerIsGone() throws Exception {
		client.close();
		client = fake.builder().closeTimeout(Duration.ofSeconds(1)).connect();
		List<CopilotSession> sessions = new ArrayList<>();
		for (int i = 0; i < 5; i++) {
			sessions.add(open(with(WEATHER)));
		}
		fake.close();
		long begin = System.nanoTime();
		try (Logged logged = new Logged()) {
			client.close(); // all sessions at once
			assertTrue(System.nanoTime() - begin < Duration.ofSeconds(5).toNanos());
			assertEquals(5, logged.lines().stream()
					.filter(line -> line.startsWith("WARNING left session s1 without the server: ")).count(),
					logged.lines()::toString);
		}
		for (CopilotSession session : sessions) {
			assertTrue(session.ended().isDone());
		}
	}

	@Test
	void interruptedThreadDoesNotWaitForTheGoodbye() throws Exception {
		CopilotSession session = openPatiently(FakeServer.QUICKLY);
		CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
		Thread thread = new Thread(() -> {
			Thread.currentThread().interrupt();
			session.close();
			interrupted.complete(Thread.currentThread().isInterrupted());
		});
		thread.start();
		assertTrue(soon(interrupted));
		stream.goodbye(); // leaves all the same
		soon(session.ended());
	}
}
