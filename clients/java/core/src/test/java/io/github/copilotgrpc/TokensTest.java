package io.github.copilotgrpc;

import static io.github.copilotgrpc.FakeServer.refusal;
import static io.github.copilotgrpc.FakeServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.copilotgrpc.bridge.v1.CloseReason;
import io.github.copilotgrpc.bridge.v1.SendAndWaitResponse;
import io.github.copilotgrpc.bridge.v1.SubscribeResponse;
import io.github.copilotgrpc.bridge.v1.SubscriptionClosed;
import io.github.copilotgrpc.bridge.v1.TurnOutcome;
import io.github.copilotgrpc.bridge.v1.TurnStatus;
import io.github.copilotgrpc.errors.UnauthenticatedException;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.Iterator;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Tokens that expire while a program uses them. */
class TokensTest {
	private static final Metadata.Key<String> AUTHORIZATION =
			Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

	private FakeServer fake;
	private volatile String token = "old";

	@BeforeEach
	void start() throws Exception {
		fake = new FakeServer();
	}

	@AfterEach
	void stop() {
		fake.close();
	}

	private CopilotClient connect(Token source) throws Exception {
		CopilotClient client = fake.builder().token(source).connect();
		bearer(); // of the check
		return client;
	}

	private String bearer() throws Exception {
		return soon(fake.headers).get(AUTHORIZATION).substring("Bearer ".length());
	}

	private static StatusRuntimeException expired() {
		return refusal(Status.Code.UNAUTHENTICATED, "UNAUTHENTICATED", "the token has expired", "");
	}

	private static SendAndWaitResponse completed(String text) {
		return SendAndWaitResponse.newBuilder().setMessageId("m").setOutcome(
				TurnOutcome.newBuilder().setStatus(TurnStatus.TURN_STATUS_COMPLETED).setText(text)).build();
	}

	@Test
	void waitsThatFailTogetherAreEachRepeatedWithTheNewToken() throws Exception {
		try (CopilotClient client = connect(() -> token)) {
			CopilotSession session = client.session("s1");
			CompletableFuture<Outcome> first = session.sendAndWaitAsync(Prompt.of("one"));
			var firstWait = soon(fake.waits);
			CompletableFuture<Outcome> second = session.sendAndWaitAsync(Prompt.of("two"));
			var secondWait = soon(fake.waits);
			assertEquals("old", bearer());
			assertEquals("old", bearer());
			token = "new";
			firstWait.fail(expired());
			var again = soon(fake.waits);
			assertEquals(firstWait.request, again.request);
			again.send(completed("one"));
			again.end();
			assertEquals("one", soon(first).text());
			secondWait.fail(expired());
			again = soon(fake.waits);
			assertEquals(secondWait.request, again.request);
			again.send(completed("two"));
			again.end();
			assertEquals("two", soon(second).text());
			assertEquals("new", bearer());
			assertEquals("new", bearer());
		}
	}

	@Test
	void callIsRepeatedOnceAndOnlyWithAnotherToken() throws Exception {
		AtomicInteger numbers = new AtomicInteger();
		try (CopilotClient client = connect(() -> "token " + numbers.incrementAndGet())) {
			CompletableFuture<Outcome> wait = client.session("s1").sendAndWaitAsync(Prompt.of("Hello"));
			soon(fake.waits).fail(expired());
			soon(fake.waits).fail(expired());
			refused(wait);
			assertNotEquals(bearer(), bearer());
		}
		try (CopilotClient client = connect(Token.of("same"))) {
			CompletableFuture<Outcome> wait = client.session("s1").sendAndWaitAsync(Prompt.of("Hello"));
			soon(fake.waits).fail(expired());
			assertFalse(refused(wait).isTokenReplaced());
		}
		assertTrue(fake.waits.isEmpty());
	}

	@Test
	void unaryCallIsRepeatedOnce() throws Exception {
		AtomicInteger numbers = new AtomicInteger();
		fake.sessionRefusal = expired();
		try (CopilotClient client = connect(() -> "token " + numbers.incrementAndGet())) {
			assertThrows(UnauthenticatedException.class, () -> client.getSession("s1"));
			assertNotEquals(bearer(), bearer());
			assertTrue(fake.headers.isEmpty());
		}
	}

	@Test
	void streamIsOpenedAgainWithTheNewToken() throws Exception {
		try (CopilotClient client = connect(() -> token)) {
			Iterator<StreamItem> events = client.session("s1").events().iterator();
			CompletableFuture<Boolean> more = CompletableFuture.supplyAsync(events::hasNext);
			var stream = soon(fake.subscriptions);
			token = "new";
			stream.fail(expired());
			stream = soon(fake.subscriptions);
			stream.send(SubscribeResponse.newBuilder().setSessionId("s1").setClosed(
					SubscriptionClosed.newBuilder().setReason(CloseReason.CLOSE_REASON_DELETED)).build());
			assertFalse(soon(more));
			assertEquals("old", bearer());
			assertEquals("new", bearer());
		}
	}

	private static UnauthenticatedException refused(CompletableFuture<?> call) {
		ExecutionException error = assertThrows(ExecutionException.class, () -> soon(call));
		return (UnauthenticatedException) error.getCause();
	}
}
