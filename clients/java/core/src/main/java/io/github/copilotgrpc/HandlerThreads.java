package io.github.copilotgrpc;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** The threads of a client's handlers. A participant bounds how many it uses. */
final class HandlerThreads {
	private HandlerThreads() {}

	static ExecutorService open(ThreadFactory factory) {
		return new ThreadPoolExecutor(0, Integer.MAX_VALUE, 10, TimeUnit.SECONDS, new SynchronousQueue<>(), factory,
				// Results that arrive after the client was closed still reach those who wait for them.
				(task, executor) -> task.run());
	}
}
