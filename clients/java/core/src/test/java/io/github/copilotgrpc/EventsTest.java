package io.github.copilotgrpc;

import static io.github.copilotgrpc.FakeServer.position;
import static io.github.copilotgrpc.FakeServer.refusal;
import static io.github.copilotgrpc.FakeServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.copilotgrpc.FakeServer.Played;
import io.github.copilotgrpc.bridge.v1.CloseReason;
import io.github.copilotgrpc.bridge.v1.EventBatch;
import io.github.copilotgrpc.bridge.v1.GoAway;
import io.github.copilotgrpc.bridge.v1.Progress;
import io.github.copilotgrpc.bridge.v1.RunRequest;
import io.github.copilotgrpc.bridge.v1.RunResponse;
import io.github.copilotgrpc.bridge.v1.RunStarted;
import io.github.copilotgrpc.bridge.v1.SendAndWaitRequest;
import io.github.copilotgrpc.bridge.v1.SendAndWaitResponse;
import io.github.copilotgrpc.bridge.v1.SubscribeRequest;
import io.github.copilotgrpc.bridge.v1.SubscribeResponse;
import io.github.copilotgrpc.bridge.v1.SubscriptionClosed;
import io.github.copilotgrpc.bridge.v1.TurnOutcome;
import io.github.copilotgrpc.bridge.v1.TurnStatus;
import io.github.copilotgrpc.cli.v1.AssistantMessageData;
import io.github.copilotgrpc.cli.v1.AssistantMessageDeltaData;
import io.github.copilotgrpc.cli.v1.SessionEvent;
import io.github.copilotgrpc.errors.CallInterruptedException;
import io.github.copilotgrpc.errors.ConnectionLostException;
import io.github.copilotgrpc.errors.CopilotException;
import io.github.copilotgrpc.errors.SessionNotFoundException;
import io.grpc.Status;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Streams of events and turns: reconnection, gaps, duplicates and the end. */
class EventsTest {
	private FakeServer fake;
	private CopilotClient client;
	private CopilotSession session;

	@BeforeEach
	void connect() throws Exception {
		fake = new FakeServer();
		client = fake.connect();
		session = client.session("s1");
	}

	@AfterEach
	void close() {
		client.close();
		fake.close();
	}

	static SubscribeResponse events(long... numbers) {
		EventBatch.Builder batch = EventBatch.newBuilder();
		for (long seq : numbers) {
			batch.addEvents(io.github.copilotgrpc.bridge.v1.Event.newBuilder().setPosition(position(1, seq))
					.setEvent(SessionEvent.newBuilder().setEventType("event." + seq)));
		}
		return SubscribeResponse.newBuilder().setSessionId("s1").setEvents(batch).build();
	}

	private Played<SubscribeRequest, SubscribeResponse> subscribed() throws InterruptedException {
		return soon(fake.subscriptions);
	}

	/** Reads in another thread, so that the test can play the server. */
	private static <T> BlockingQueue<Object> reading(Iterable<T> items) {
		BlockingQueue<Object> read = new LinkedBlockingQueue<>();
		Thread thread = new Thread(() -> {
			try {
				items.forEach(read::add);
				read.add("end");
			} catch (CopilotException e) {
				read.add(e);
			}
		});
		thread.setDaemon(true);
		thread.start();
		return read;
	}

	static String name(Object item) {
		return item instanceof Event event ? event.type() : String.valueOf(item);
	}

	@Test
	void brokenStreamContinuesWithoutDuplicates() throws Exception {
		try (var items = session.events()) {
			var read = reading(items);
			var first = subscribed();
			assertFalse(first.request.getSessions(0).hasAfter());
			first.send(events(1, 2));
			assertEquals("event.1", name(soon(read)));
			assertEquals("event.2", name(soon(read)));
			first.cut(Status.Code.UNAVAILABLE);
			var second = subscribed();
			assertEquals(position(1, 2), second.request.getSessions(0).getAfter());
			second.send(events(1, 2));
			second.send(events(2, 3));
			assertEquals("event.3", name(soon(read)));
			second.end(); // without a reason
			subscribed().send(SubscribeResponse.newBuilder().setSessionId("s1").setClosed(
					SubscriptionClosed.newBuilder().setReason(CloseReason.CLOSE_REASON_DELETED)).build());
			assertEquals("end", soon(read));
			assertEquals("1/3", session.position().orElseThrow().toString());
		}
	}

	@Test
	void goAwayAndDrainingOpenTheNextStream() throws Exception {
		try (var items = session.events(EventQuery.all().after(new Position(1, 7)).types("a.*").exclude("b"))) {
			var read = reading(items);
			var first = subscribed();
			assertEquals(position(1, 7), first.request.getSessions(0).getAfter());
			assertEquals(List.of("a.*"), first.request.getSessions(0).getFilter().getTypesList());
			assertEquals(List.of("b"), first.request.getSessions(0).getFilter().getExcludeTypesList());
			first.send(SubscribeResponse.newBuilder().setGoAway(GoAway.getDefaultInstance()).build());
			var second = subscribed();
			second.send(SubscribeResponse.newBuilder().setResumeAfter(position(1, 9)).setClosed(
					SubscriptionClosed.newBuilder().setReason(CloseReason.CLOSE_REASON_DRAINING)).build());
			subscribed().send(events(10));
			assertEquals("event.10", name(soon(read)));
		}
	}

	@Test
	void gapsAreTypedAndEphemeralOnesAreLeftOut() throws Exception {
		try (var items = session.events()) {
			var read = reading(items);
			var stream = subscribed();
			for (var reason : List.of(
					io.github.copilotgrpc.bridge.v1.GapReason.GAP_REASON_EPHEMERAL_LOST,
					io.github.copilotgrpc.bridge.v1.GapReason.GAP_REASON_TRIMMED)) {
				stream.send(SubscribeResponse.newBuilder().setGap(io.github.copilotgrpc.bridge.v1.Gap.newBuilder()
						.setAfter(position(1, 2)).setThrough(position(1, 5)).setReason(reason))
						.setResumeAfter(position(1, 5)).build());
			}
			Gap gap = assertInstanceOf(Gap.class, soon(read));
			assertEquals(GapReason.TRIMMED, gap.reason());
			assertEquals(new Position(1, 2), gap.after());
			assertEquals(new Position(1, 5), gap.position());
			stream.cut(Status.Code.INTERNAL);
			assertEquals(position(1, 5), subscribed().request.getSessions(0).getAfter());
		}
	}

	@Test
	void refusalsAreFinal() throws Exception {
		try (var items = session.events()) {
			var read = reading(items);
			subscribed().fail(refusal(Status.Code.NOT_FOUND, "SESSION_NOT_FOUND", "gone", ""));
			assertInstanceOf(SessionNotFoundException.class, soon(read));
		}
	}

	@Test
	void closingTheSessionEndsItsStreams() throws Exception {
		var read = reading(session.events());
		var stream = subscribed();
		session.close();
		assertEquals("end", soon(read));
		soon(stream.gone);
	}

	@Test
	void interruptionEndsTheStream() throws Exception {
		CompletableFuture<Throwable> thrown = new CompletableFuture<>();
		Thread thread = new Thread(() -> {
			Iterator<StreamItem> items = session.events().iterator();
			thrown.complete(assertThrows(CallInterruptedException.class, items::hasNext));
		});
		thread.start();
		var stream = subscribed();
		thread.interrupt();
		soon(thrown);
		soon(stream.gone);
	}

	@Test
	void interruptionEndsAStreamWhoseEventsHaveArrived() throws Exception {
		CompletableFuture<Throwable> thrown = new CompletableFuture<>();
		Thread thread = new Thread(() -> {
			Iterator<StreamItem> items = session.events().iterator();
			assertEquals("event.1", name(items.next()));
			Thread.currentThread().interrupt();
			thrown.complete(assertThrows(CallInterruptedException.class, items::hasNext));
		});
		thread.start();
		var stream = subscribed();
		stream.send(events(1, 2, 3));
		soon(thrown);
		soon(stream.gone);
	}

	@Test
	void interruptionAbortsATurnWhoseEventsHaveArrived() throws Exception {
		CompletableFuture<Throwable> thrown = new CompletableFuture<>();
		Turn turn = session.run(Prompt.of("Hello").abortOnCancel());
		Thread thread = new Thread(() -> {
			Iterator<StreamItem> items = turn.iterator();
			items.next();
			Thread.currentThread().interrupt();
			thrown.complete(assertThrows(CallInterruptedException.class, items::hasNext));
		});
		thread.start();
		Played<RunRequest, RunResponse> run = soon(fake.runs);
		run.send(stream(message("a", "One"), 1));
		run.send(stream(message("b", "Two"), 2));
		soon(thrown);
		soon(run.gone);
		assertEquals("s1", soon(fake.aborts).getSessionId());
	}

	@Test
	void eventsBeforeABreakAreRead() throws Exception {
		try (var items = session.events()) {
			Iterator<StreamItem> iterator = items.iterator();
			CompletableFuture<Boolean> first = CompletableFuture.supplyAsync(iterator::hasNext);
			var stream = subscribed();
			for (int seq = 1; seq <= 3 * Reader.AHEAD; seq++) {
				stream.send(events(seq));
			}
			stream.cut(Status.Code.UNAVAILABLE);
			assertTrue(soon(first));
			for (int seq = 1; seq <= 3 * Reader.AHEAD; seq++) {
				assertEquals("event." + seq, name(iterator.next()));
			}
			CompletableFuture<String> last = CompletableFuture.supplyAsync(() -> name(iterator.next()));
			var second = subscribed();
			assertEquals(position(1, 3 * Reader.AHEAD), second.request.getSessions(0).getAfter());
			second.send(events(3 * Reader.AHEAD + 1));
			assertEquals("event." + (3 * Reader.AHEAD + 1), soon(last));
		}
	}

	private static RunResponse stream(SessionEvent.Builder event, long seq) {
		EventBatch batch = EventBatch.newBuilder().addEvents(io.github.copilotgrpc.bridge.v1.Event.newBuilder()
				.setPosition(position(1, seq)).setEvent(event)).build();
		return RunResponse.newBuilder().setStream(SubscribeResponse.newBuilder().setEvents(batch)).build();
	}

	private static SessionEvent.Builder delta(String message, String text) {
		return SessionEvent.newBuilder().setAssistantMessageDelta(
				AssistantMessageDeltaData.newBuilder().setMessageId(message).setDeltaContent(text));
	}

	private static SessionEvent.Builder message(String message, String text) {
		return SessionEvent.newBuilder().setAssistantMessage(
				AssistantMessageData.newBuilder().setMessageId(message).setContent(text));
	}

	private static RunResponse outcome(String text) {
		return RunResponse.newBuilder().setOutcome(TurnOutcome.newBuilder()
				.setStatus(TurnStatus.TURN_STATUS_COMPLETED).setText(text).setEndPosition(position(1, 20))).build();
	}

	@Test
	void turnSurvivesABrokenStreamAndSendsOnce() throws Exception {
		Turn turn = session.run("Hello");
		var read = reading(turn.deltas());
		Played<RunRequest, RunResponse> first = soon(fake.runs);
		first.send(RunResponse.newBuilder().setStarted(RunStarted.newBuilder().setMessageId("m")).build());
		first.send(stream(delta("a", "One "), 1));
		assertEquals("One ", soon(read));
		first.cut(Status.Code.UNAVAILABLE);
		Played<RunRequest, RunResponse> second = soon(fake.runs);
		assertEquals(first.request, second.request);
		second.send(RunResponse.newBuilder().setProgress(Progress.newBuilder().setDetail("starting")).build());
		second.send(RunResponse.newBuilder().setStarted(RunStarted.newBuilder().setMessageId("m")).build());
		second.send(stream(delta("a", "One "), 1)); // again
		second.send(stream(delta("a", "two."), 2));
		second.send(stream(message("a", "One two."), 3));
		second.send(stream(message("b", "Three."), 4));
		second.send(stream(message("c", "of another agent").setAgentId("x"), 5));
		second.send(outcome("Three."));
		List<Object> rest = new ArrayList<>();
		for (Object item = soon(read); !item.equals("end"); item = soon(read)) {
			rest.add(item);
		}
		assertEquals(List.of("two.", "Three."), rest);
		assertEquals("Three.", turn.outcome().text());
		assertEquals("m", turn.outcome().messageId());
		assertThrows(IllegalStateException.class, turn::iterator);
	}

	@Test
	void outcomeReadsTheTurn() throws Exception {
		CompletableFuture<Outcome> outcome = session.run("Hello").outcomeAsync();
		Played<RunRequest, RunResponse> run = soon(fake.runs);
		run.send(stream(message("a", "x"), 1));
		run.send(outcome("x"));
		assertEquals("x", soon(outcome).text());
	}

	@Test
	void closedTurnHasNoOutcome() throws Exception {
		Turn turn = session.run("Hello");
		var read = reading(turn);
		Played<RunRequest, RunResponse> run = soon(fake.runs);
		turn.close();
		assertEquals("end", soon(read));
		soon(run.gone);
		assertThrows(ConnectionLostException.class, turn::outcome);
	}

	@Test
	void sendAndWaitIsRepeatedWithItsRequestId() throws Exception {
		CompletableFuture<Outcome> outcome = session.sendAndWaitAsync(Prompt.of("Hello"));
		Played<SendAndWaitRequest, SendAndWaitResponse> first = soon(fake.waits);
		first.cut(Status.Code.UNAVAILABLE);
		Played<SendAndWaitRequest, SendAndWaitResponse> second = soon(fake.waits);
		assertEquals(first.request, second.request);
		assertFalse(first.request.getRequestId().isEmpty());
		second.send(SendAndWaitResponse.newBuilder().setMessageId("m")
				.setOutcome(TurnOutcome.newBuilder().setStatusValue(99)).build());
		second.end();
		assertEquals(Outcome.Status.UNKNOWN, soon(outcome).status());
	}

	@Test
	void cancelledFutureCancelsTheCall() throws Exception {
		CompletableFuture<Outcome> outcome = session.sendAndWaitAsync(Prompt.of("Hello"));
		Played<SendAndWaitRequest, SendAndWaitResponse> call = soon(fake.waits);
		outcome.cancel(true);
		soon(call.gone);
	}
}
