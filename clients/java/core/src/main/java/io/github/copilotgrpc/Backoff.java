package io.github.copilotgrpc;

import io.github.copilotgrpc.errors.CopilotException;
import io.github.copilotgrpc.errors.UnauthenticatedException;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.DoubleSupplier;
import java.util.function.LongSupplier;

/** The pauses between the attempts of one stream or call. Not safe for concurrent use. */
final class Backoff {
	private final Reconnect policy;
	private final LongSupplier clock;
	private final DoubleSupplier random;
	private Duration limit;
	private long aliveAt;
	private boolean tokenReplaced;

	Backoff(Reconnect policy) {
		this(policy, System::nanoTime, () -> ThreadLocalRandom.current().nextDouble());
	}

	/** @param clock nanoseconds; random: from 0 to 1 */
	Backoff(Reconnect policy, LongSupplier clock, DoubleSupplier random) {
		this.policy = policy;
		this.clock = clock;
		this.random = random;
		this.limit = policy.first();
		this.aliveAt = clock.getAsLong();
	}

	/** Notes that the stream is alive. */
	void reset() {
		limit = policy.first();
		aliveAt = clock.getAsLong();
		tokenReplaced = false;
	}

	/** The pause before the next attempt; empty if there is to be none. A replaced token is a reason for one. */
	Optional<Duration> next(CopilotException error) {
		if (error instanceof UnauthenticatedException refusal && refusal.isTokenReplaced()) {
			if (tokenReplaced) {
				return Optional.empty();
			}
			tokenReplaced = true;
		}
		Duration delay = error.retryAfter().plusNanos((long) (limit.toNanos() * random.getAsDouble()));
		Duration doubled = limit.multipliedBy(2);
		limit = doubled.compareTo(policy.longest()) < 0 ? doubled : policy.longest();
		Duration silent = Duration.ofNanos(clock.getAsLong() - aliveAt);
		return silent.plus(delay).compareTo(policy.giveUpAfter()) >= 0 ? Optional.empty() : Optional.of(delay);
	}
}
