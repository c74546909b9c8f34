package io.github.copilotgrpc;

import java.util.ArrayDeque;
import java.util.Queue;

/**
 * Bounds how many tasks run at once. Tasks that find no permit wait in a queue, without a thread. Runs in one
 * context.
 */
final class Permits {
	private final Queue<Runnable> waiting = new ArrayDeque<>();
	private int free;

	Permits(int permits) {
		free = permits;
	}

	/** Runs a task with a permit, now or later. */
	void acquire(Runnable task) {
		if (free > 0) {
			free--;
			task.run();
		} else {
			waiting.add(task);
		}
	}

	/** Gives a permit back. */
	void release() {
		Runnable next = waiting.poll();
		if (next == null) {
			free++;
		} else {
			next.run();
		}
	}
}
