package io.github.copilotgrpc;

import static io.github.copilotgrpc.FakeServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.copilotgrpc.errors.ConnectionLostException;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The responses of a call, with their bound and their end. */
class ReaderTest {
	/** A call whose responses the test sends. */
	private static final class Call extends ClientCall<String, Integer> {
		private ClientCall.Listener<Integer> listener;
		private int requested;
		private boolean cancelled;

		@Override
		public void start(Listener<Integer> started, Metadata headers) {
			listener = started;
		}

		@Override
		public void request(int more) {
			requested += more;
		}

		@Override
		public void cancel(String message, Throwable cause) {
			cancelled = true;
		}

		@Override
		public void halfClose() {
			// The request is complete.
		}

		@Override
		public void sendMessage(String message) {
			assertEquals("request", message);
		}
	}

	/** A timer whose tasks the test runs. */
	private static final class Timer extends ScheduledThreadPoolExecutor {
		private final List<Runnable> tasks = new ArrayList<>();

		private Timer() {
			super(0);
		}

		@Override
		public ScheduledFuture<?> schedule(Runnable task, long delay, TimeUnit unit) {
			assertTrue(delay > 0 && delay <= TimeUnit.HOURS.toNanos(1) && unit == TimeUnit.NANOSECONDS);
			tasks.add(task);
			return super.schedule(task, 1, TimeUnit.HOURS);
		}
	}

	private final Call call = new Call();
	private final Timer timer = new Timer();

	private Reader<Integer> reader(Duration silence) {
		Reader<Integer> reader = new Reader<>(timer, silence);
		reader.start(call, "request");
		return reader;
	}

	private Reader<Integer> reader() {
		return reader(Duration.ofHours(1));
	}

	private static Throwable failure(CompletableFuture<?> future) {
		return assertThrows(ExecutionException.class, () -> soon(future)).getCause();
	}

	@ParameterizedTest
	@ValueSource(longs = {1, 2, 3, 4, 5})
	void responsesAheadOfTheReaderAreBounded(long seed) throws Exception {
		Random random = new Random(seed);
		Reader<Integer> reader = reader();
		int sent = 0;
		int read = 0;
		CompletableFuture<Integer> waiting = null;
		for (int step = 0; step < 10_000; step++) {
			if (random.nextBoolean() && sent < call.requested) {
				call.listener.onMessage(sent++);
			} else if (waiting == null && random.nextBoolean()) {
				Integer message = reader.poll();
				assertEquals(sent > read ? read++ : null, message);
			} else if (waiting == null) {
				waiting = reader.next();
			}
			if (waiting != null && sent > read) {
				assertEquals(read++, soon(waiting));
				waiting = null;
			}
			int ahead = call.requested - read;
			assertTrue(ahead > 0 && ahead <= Reader.AHEAD, "requested " + call.requested + ", read " + read);
		}
		assertTrue(read > Reader.AHEAD * 10);
	}

	@Test
	void endComesAfterTheResponses() throws Exception {
		for (Status status : List.of(Status.OK, Status.UNAVAILABLE)) {
			Reader<Integer> reader = reader();
			call.listener.onMessage(1);
			call.listener.onMessage(2);
			call.listener.onClose(status, new Metadata());
			assertEquals(1, soon(reader.next()));
			assertEquals(2, reader.poll());
			assertNull(reader.poll());
			for (int i = 0; i < 2; i++) {
				if (status.isOk()) {
					assertNull(soon(reader.next()));
				} else {
					assertInstanceOf(ConnectionLostException.class, failure(reader.next()));
				}
			}
		}
		assertFalse(call.cancelled);
	}

	@Test
	void closeDropsTheResponses() throws Exception {
		Reader<Integer> reader = reader();
		call.listener.onMessage(1);
		reader.close();
		assertTrue(call.cancelled);
		assertNull(reader.poll());
		assertNull(soon(reader.next()));
		call.listener.onMessage(2);
		assertNull(reader.poll());
	}

	@Test
	void responsesThatWaitedAreDroppedByACloseAfterTheEnd() throws Exception {
		Reader<Integer> reader = reader();
		call.listener.onMessage(1);
		call.listener.onClose(Status.OK, new Metadata());
		reader.close();
		assertNull(soon(reader.next()));
	}

	@Test
	void silenceEndsOnlyAReadThatWaits() throws Exception {
		Reader<Integer> reader = reader(Duration.ofNanos(1));
		call.listener.onMessage(1);
		assertEquals(1, soon(reader.next()));
		assertTrue(timer.tasks.isEmpty()); // it did not wait
		CompletableFuture<Integer> second = reader.next();
		call.listener.onMessage(2);
		assertEquals(2, soon(second));
		timer.tasks.remove(0).run(); // nothing waits
		assertTrue(timer.tasks.isEmpty());
		CompletableFuture<Integer> third = reader.next();
		timer.tasks.remove(0).run();
		assertEquals("the server is silent", assertInstanceOf(ConnectionLostException.class, failure(third)).getMessage());
		assertTrue(call.cancelled);
	}

	@Test
	void readsShareAnAlarm() {
		Reader<Integer> reader = reader();
		for (int message = 0; message < 100; message++) {
			CompletableFuture<Integer> read = reader.next();
			call.listener.onMessage(message);
			assertEquals(message, read.join());
		}
		assertEquals(1, timer.tasks.size());
		CompletableFuture<Integer> last = reader.next();
		timer.tasks.remove(0).run(); // the last read has waited for less than the silence
		assertFalse(last.isDone());
		assertEquals(1, timer.tasks.size());
	}
}
