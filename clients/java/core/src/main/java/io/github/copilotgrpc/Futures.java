package io.github.copilotgrpc;

import io.github.copilotgrpc.errors.CallInterruptedException;
import io.github.copilotgrpc.errors.CopilotException;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.function.Function;

/** Waits for futures, and connects them. */
final class Futures {
	private Futures() {}

	/**
	 * Waits for a future. An interruption cancels it.
	 *
	 * @throws CopilotException the future failed, or the thread was interrupted
	 */
	static <T> T await(CompletableFuture<T> future) {
		try {
			return future.get();
		} catch (InterruptedException e) {
			future.cancel(true);
			Thread.currentThread().interrupt();
			throw new CallInterruptedException(e);
		} catch (ExecutionException e) {
			Throwable cause = Errors.unwrap(e);
			if (cause instanceof CopilotException error) {
				error.fillInStackTrace(); // the caller's, in place of the one of gRPC's thread
				throw error;
			}
			if (cause instanceof RuntimeException error) {
				throw error;
			}
			if (cause instanceof Error error) {
				throw error;
			}
			throw new IllegalStateException(cause);
		}
	}

	/** Waits for a future whose result does not matter, or until the thread is interrupted. */
	static void awaitQuietly(CompletableFuture<?> future) {
		try {
			future.get();
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
		} catch (ExecutionException | CancellationException e) {
			Log.debug("a call failed at the end", e);
		}
	}

	/** Completes a future with the result of another one, and cancels that one with it. */
	static <T> void relay(CompletableFuture<? extends T> from, CompletableFuture<T> to) {
		from.whenComplete((value, error) -> {
			if (error != null) {
				fail(to, Errors.unwrap(error));
			} else {
				to.complete(value);
			}
		});
		onCancel(to, () -> from.cancel(true));
	}

	/** Another form of a result. Cancelling the future cancels the one before, unlike thenApply. */
	static <T, R> CompletableFuture<R> map(CompletableFuture<T> from, Function<? super T, ? extends R> function) {
		CompletableFuture<R> to = new CompletableFuture<>();
		relay(from.thenApply(function), to);
		onCancel(to, () -> from.cancel(true));
		return to;
	}

	/** The same result, completed by an executor, so that code of programs does not run in threads of the library. */
	static <T> CompletableFuture<T> published(CompletableFuture<? extends T> from, Executor executor) {
		CompletableFuture<T> to = new CompletableFuture<>();
		from.whenCompleteAsync((value, error) -> {
			if (error != null) {
				fail(to, Errors.unwrap(error));
			} else {
				to.complete(value);
			}
		}, executor).whenComplete((value, error) -> {
			if (!to.isDone()) {
				fail(to, Errors.unwrap(error)); // the executor refused the task
			}
		});
		onCancel(to, () -> from.cancel(true));
		return to;
	}

	/** Runs an action if a future is cancelled. */
	static void onCancel(CompletableFuture<?> future, Runnable action) {
		future.whenComplete((value, error) -> {
			if (future.isCancelled()) {
				action.run();
			}
		});
	}

	private static void fail(CompletableFuture<?> future, Throwable error) {
		if (error instanceof CancellationException) {
			future.cancel(true);
		} else {
			future.completeExceptionally(error);
		}
	}
}
