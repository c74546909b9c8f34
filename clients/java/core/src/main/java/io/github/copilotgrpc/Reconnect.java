package io.github.copilotgrpc;

import java.time.Duration;
import java.util.Objects;

/**
 * Defines how broken streams are opened again.
 *
 * @param first maximum of the first pause; pauses are random, up to a maximum that doubles
 * @param longest limit of that maximum
 * @param giveUpAfter time without a live stream after which the last error is final; zero disables reconnection
 */
public record Reconnect(Duration first, Duration longest, Duration giveUpAfter) {
	/** Pauses from 100 ms to 5 s, for five minutes. */
	public static final Reconnect DEFAULT =
			new Reconnect(Duration.ofMillis(100), Duration.ofSeconds(5), Duration.ofMinutes(5));
	/** No reconnection: the first error is final. */
	public static final Reconnect NEVER = new Reconnect(Duration.ZERO, Duration.ZERO, Duration.ZERO);

	/**
	 * Refuses negative times.
	 *
	 * @param first maximum of the first pause
	 * @param longest limit of that maximum
	 * @param giveUpAfter time without a live stream after which the last error is final
	 */
	public Reconnect {
		for (Duration time : new Duration[] {first, longest, giveUpAfter}) {
			if (Objects.requireNonNull(time).isNegative()) {
				throw new IllegalArgumentException("negative time " + time);
			}
		}
	}
}
