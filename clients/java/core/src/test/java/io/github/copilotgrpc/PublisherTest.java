package io.github.copilotgrpc;

import static io.github.copilotgrpc.EventsTest.events;
import static io.github.copilotgrpc.EventsTest.name;
import static io.github.copilotgrpc.FakeServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Streams of events for subscribers. */
class PublisherTest {
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

	@Test
	void publisherFollowsDemand() throws Exception {
		BlockingQueue<String> seen = new LinkedBlockingQueue<>();
		CompletableFuture<Flow.Subscription> subscribed = new CompletableFuture<>();
		var items = session.events();
		items.publisher().subscribe(new Flow.Subscriber<>() {
			@Override
			public void onSubscribe(Flow.Subscription subscription) {
				subscribed.complete(subscription);
			}

			@Override
			public void onNext(StreamItem item) {
				seen.add(name(item));
			}

			@Override
			public void onError(Throwable error) {
				seen.add("error");
			}

			@Override
			public void onComplete() {
				seen.add("complete");
			}
		});
		assertTrue(fake.subscriptions.isEmpty()); // nothing was asked for
		soon(subscribed).request(2);
		var stream = soon(fake.subscriptions);
		stream.send(events(1, 2, 3));
		assertEquals("event.1", soon(seen));
		assertEquals("event.2", soon(seen));
		soon(subscribed).request(1);
		assertEquals("event.3", soon(seen));
		assertTrue(seen.isEmpty());
		assertThrows(IllegalStateException.class, items::iterator);
		soon(subscribed).cancel();
		soon(stream.gone);
	}

	@Test
	void publisherUsesOneTaskForEventsThatHaveArrived() throws Exception {
		AtomicInteger tasks = new AtomicInteger();
		CompletableFuture<Integer> used = new CompletableFuture<>();
		ExecutorService threads = Executors.newCachedThreadPool();
		try (CopilotClient counted = fake.builder().executor(task -> threads.execute(() -> {
			tasks.incrementAndGet();
			task.run();
		})).connect()) {
			tasks.set(0);
			counted.session("s1").events().publisher().subscribe(new Flow.Subscriber<>() {
				@Override
				public void onSubscribe(Flow.Subscription subscription) {
					subscription.request(Long.MAX_VALUE);
				}

				@Override
				public void onNext(StreamItem item) {
					if (item.position().seq() == 130) {
						used.complete(tasks.get());
					}
				}

				@Override
				public void onError(Throwable error) {
					used.completeExceptionally(error);
				}

				@Override
				public void onComplete() {
					used.complete(-1);
				}
			});
			soon(fake.subscriptions).send(events(LongStream.rangeClosed(1, 130).toArray()));
			assertEquals(3, soon(used)); // 64, 64 and 2 events
		} finally {
			threads.shutdown();
		}
	}
}
