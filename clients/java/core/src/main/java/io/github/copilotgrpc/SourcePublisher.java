package io.github.copilotgrpc;

import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/** Publishes the values of a source to one subscriber, as fast as it asks for them. */
final class SourcePublisher<T> implements Flow.Publisher<T> {
	/** Values of one task of the executor. The tasks of other streams get their turn between two batches. */
	private static final int BATCH = 64;

	private final Source<T> source;
	private final Executor executor;
	private final Runnable begin;

	/** @param begin throws IllegalStateException if the source is being read */
	SourcePublisher(Source<T> source, Executor executor, Runnable begin) {
		this.source = source;
		this.executor = executor;
		this.begin = begin;
	}

	@Override
	public void subscribe(Flow.Subscriber<? super T> subscriber) {
		try {
			begin.run();
		} catch (IllegalStateException e) {
			subscriber.onSubscribe(new Refused());
			subscriber.onError(e);
			return;
		}
		Subscription subscription = new Subscription(subscriber);
		subscriber.onSubscribe(subscription);
		subscription.subscribed();
	}

	/** The subscription of a subscriber that comes too late. */
	private static final class Refused implements Flow.Subscription {
		@Override
		public void request(long n) {
			// onError follows.
		}

		@Override
		public void cancel() {
			// Nothing runs.
		}
	}

	private final class Subscription implements Flow.Subscription {
		private final Flow.Subscriber<? super T> subscriber;
		// Values that were asked for.
		private final AtomicLong demand = new AtomicLong();
		// A read is under way. True until `onSubscribe` has returned, so that no value comes before that.
		private final AtomicBoolean reading = new AtomicBoolean(true);
		private volatile boolean ended;

		private Subscription(Flow.Subscriber<? super T> subscriber) {
			this.subscriber = subscriber;
		}

		private void subscribed() {
			reading.set(false);
			read();
		}

		@Override
		public void request(long n) {
			if (n <= 0) {
				end(() -> subscriber.onError(new IllegalArgumentException("request(" + n + "): want 1 or more")));
				return;
			}
			demand.accumulateAndGet(n, (before, more) -> before + more < 0 ? Long.MAX_VALUE : before + more);
			read();
		}

		@Override
		public void cancel() {
			ended = true;
			source.close();
		}

		private void read() {
			while (!ended && demand.get() > 0 && reading.compareAndSet(false, true)) {
				if (demand.get() == 0) {
					reading.set(false);
					continue;
				}
				source.next().whenCompleteAsync(this::take, executor);
				return;
			}
		}

		private void take(T value, Throwable error) {
			if (ended) {
				return;
			}
			if (error != null) {
				end(() -> subscriber.onError(Errors.unwrap(error)));
			} else if (value == null) {
				end(subscriber::onComplete);
			} else {
				try {
					publish(value);
				} catch (RuntimeException e) {
					end(() -> subscriber.onError(e));
				}
				reading.set(false);
				read();
			}
		}

		/** Publishes a value, and those after it that have arrived and were asked for. */
		private void publish(T first) {
			T value = first;
			for (int published = 1; value != null; published++) {
				demand.updateAndGet(before -> before == Long.MAX_VALUE ? before : before - 1);
				subscriber.onNext(value);
				boolean continues = published < BATCH && !ended && demand.get() > 0;
				value = continues ? source.poll() : null;
			}
		}

		private void end(Runnable last) {
			if (!ended) {
				cancel();
				last.run();
			}
		}
	}
}
