package io.github.copilotgrpc;

import io.github.copilotgrpc.errors.CopilotException;
import io.github.copilotgrpc.errors.UnauthenticatedException;
import io.grpc.Status;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** Makes an idempotent call until it succeeds or fails for good. Cancelling the result ends the attempts. */
final class Repeat<T> {
	private final Supplier<CompletableFuture<T>> call;
	private final ScheduledExecutorService timer;
	private final Backoff backoff;
	private final CompletableFuture<T> result = new CompletableFuture<>();
	private volatile Future<?> current;

	private Repeat(Reconnect policy, ScheduledExecutorService timer, Supplier<CompletableFuture<T>> call) {
		this.call = call;
		this.timer = timer;
		this.backoff = new Backoff(policy);
	}

	static <T> CompletableFuture<T> repeat(
			Reconnect policy, ScheduledExecutorService timer, Supplier<CompletableFuture<T>> call) {
		Repeat<T> repeat = new Repeat<>(policy, timer, call);
		Futures.onCancel(repeat.result, () -> {
			Future<?> running = repeat.current;
			if (running != null) {
				running.cancel(true);
			}
		});
		repeat.attempt();
		return repeat.result;
	}

	/** Makes a call, and once more if its token has been replaced. Cancelling the result cancels the call. */
	static <T> CompletableFuture<T> withNewToken(Supplier<CompletableFuture<T>> call) {
		CompletableFuture<T> first = call.get();
		CompletableFuture<T> result = new CompletableFuture<>();
		first.whenComplete((value, failure) -> {
			if (failure == null) {
				result.complete(value);
			} else if (Errors.unwrap(failure) instanceof UnauthenticatedException refusal && refusal.isTokenReplaced()) {
				Futures.relay(call.get(), result);
			} else {
				Futures.relay(first, result);
			}
		});
		Futures.onCancel(result, () -> first.cancel(true));
		return result;
	}

	private void attempt() {
		CompletableFuture<T> attempt = call.get();
		await(attempt);
		attempt.whenComplete((value, failure) -> {
			if (failure == null) {
				result.complete(value);
			} else if (!attempt.isCancelled()) {
				failed(failure);
			}
		});
	}

	private void failed(Throwable failure) {
		CopilotException error = Errors.of(failure);
		// The limit of a call is the caller's.
		boolean isFinal = !error.isBroken() || error.code() == Status.Code.DEADLINE_EXCEEDED;
		Optional<Duration> pause = isFinal ? Optional.empty() : backoff.next(error);
		if (pause.isEmpty()) {
			result.completeExceptionally(Errors.unwrap(failure));
		} else {
			await(timer.schedule(this::attempt, pause.get().toNanos(), TimeUnit.NANOSECONDS));
		}
	}

	/** Notes what the result waits for. A cancellation that came before is made up for. */
	private void await(Future<?> next) {
		current = next;
		if (result.isCancelled()) {
			next.cancel(true);
		}
	}
}
