package io.github.copilotgrpc;

import static io.github.copilotgrpc.FakeServer.refusal;
import static io.github.copilotgrpc.FakeServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.copilotgrpc.FakeServer.Played;
import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.bridge.v1.CallbackResolved;
import io.github.copilotgrpc.bridge.v1.PendingCaughtUp;
import io.github.copilotgrpc.bridge.v1.PendingReset;
import io.github.copilotgrpc.bridge.v1.PendingResolved;
import io.github.copilotgrpc.bridge.v1.PendingUnmatched;
import io.github.copilotgrpc.bridge.v1.ResolveRequest;
import io.github.copilotgrpc.bridge.v1.WatchPendingRequest;
import io.github.copilotgrpc.bridge.v1.WatchPendingResponse;
import io.github.copilotgrpc.errors.ForbiddenException;
import io.grpc.Status;
import java.time.Duration;
import java.util.Iterator;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The callbacks that wait in all sessions, over streams that break. */
class InboxTest {
	private static final WatchPendingResponse CAUGHT_UP =
			WatchPendingResponse.newBuilder().setCaughtUp(PendingCaughtUp.getDefaultInstance()).build();

	private FakeServer fake;
	private CopilotClient client;

	@BeforeEach
	void connect() throws Exception {
		fake = new FakeServer();
		client = fake.connect();
	}

	@AfterEach
	void close() {
		client.close();
		fake.close();
	}

	private static WatchPendingResponse requested(String session, String callback) {
		return WatchPendingResponse.newBuilder().setRequested(
				Callback.newBuilder().setSessionId(session).setCallbackId(callback)).build();
	}

	private static WatchPendingResponse resolved(String session, String callback) {
		CallbackResolved resolved = CallbackResolved.newBuilder().setCallbackId(callback).build();
		return WatchPendingResponse.newBuilder().setResolved(
				PendingResolved.newBuilder().setSessionId(session).setResolved(resolved)).build();
	}

	/** A change as text: + for a callback that waits, ! for one whose end the server reports, - for another end. */
	private static String text(PendingChange change) {
		String sign = change instanceof PendingEnd end ? (end.resolved().isPresent() ? "!" : "-") : "+";
		return sign + change.callback().getCallbackId();
	}

	@Test
	void eachCallbackWaitsOnceAndEndsOnce() throws Exception {
		PendingQuery query =
				PendingQuery.all().handle().kinds(CallbackKind.PERMISSION).label("team", "a").owner("t")
						.grace(Duration.ofMillis(1500));
		try (ItemStream<PendingChange> changes = client.watchPending(query)) {
			Iterator<PendingChange> seen = changes.iterator();
			assertTrue(fake.watches.isEmpty()); // opened by the first read
			Thread player = new Thread(this::play);
			player.start();
			for (String expected : List.of("+a", "+b", "+c", "!a", "+d", "-b", "-c", "-d")) {
				assertEquals(expected, text(seen.next()));
			}
			assertThrows(ForbiddenException.class, seen::hasNext);
			player.join();
		}
	}

	/** Plays the server of the test above. */
	private void play() {
		try {
			Played<WatchPendingRequest, WatchPendingResponse> first = soon(fake.watches);
			assertTrue(first.request.getHandle());
			assertEquals(List.of(CallbackKind.PERMISSION.proto()), first.request.getFilter().getKindsList());
			assertEquals("a", first.request.getFilter().getLabelsOrThrow("team"));
			assertEquals("t", first.request.getFilter().getOwner());
			assertEquals("1 500000000", first.request.getGrace().getSeconds() + " " + first.request.getGrace().getNanos());
			List.of(requested("s1", "a"), requested("s1", "b"), requested("s2", "c"), CAUGHT_UP, resolved("s1", "a"),
					resolved("s1", "a")).forEach(first::send);
			first.cut(Status.Code.UNAVAILABLE);
			Played<WatchPendingRequest, WatchPendingResponse> second = soon(fake.watches);
			assertEquals(first.request, second.request);
			WatchPendingResponse reset =
					WatchPendingResponse.newBuilder().setReset(PendingReset.getDefaultInstance()).build();
			WatchPendingResponse unmatched = WatchPendingResponse.newBuilder()
					.setUnmatched(PendingUnmatched.newBuilder().setSessionId("s2")).build();
			List.of(requested("s2", "c"), requested("s2", "d"), CAUGHT_UP, reset, requested("s2", "d"), CAUGHT_UP, unmatched)
					.forEach(second::send);
			second.fail(refusal(Status.Code.PERMISSION_DENIED, "FORBIDDEN", "not allowed", ""));
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
		}
	}

	@Test
	void anAnswerNamesTheCallback() throws Exception {
		try (ItemStream<PendingChange> changes = client.watchPending(PendingQuery.all())) {
			Iterator<PendingChange> seen = changes.iterator();
			Thread player = new Thread(() -> {
				try {
					Played<WatchPendingRequest, WatchPendingResponse> stream = soon(fake.watches);
					assertFalse(stream.request.getHandle());
					stream.send(requested("s1", "c1"));
				} catch (InterruptedException e) {
					Thread.currentThread().interrupt();
				}
			});
			player.start();
			if (seen.next() instanceof PendingCallback pending) {
				pending.answer(Answers.permission(Decision.approve()));
			}
			ResolveRequest request = soon(fake.resolves);
			assertEquals("s1 c1", request.getSessionId() + " " + request.getCallbackId());
			assertFalse(request.getRequestId().isEmpty());
			assertTrue(request.getAnswer().hasPermission());
			player.join();
		}
	}
}
