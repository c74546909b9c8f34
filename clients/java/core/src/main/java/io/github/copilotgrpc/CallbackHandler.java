package io.github.copilotgrpc;

/**
 * Answers a callback, in a thread of the client's executor; it may block. The thread is interrupted if the answer
 * is no longer needed.
 *
 * <p>A handler that throws answers with an error, from which the server makes the kind's safe default, and is logged;
 * only the text of a {@link HandlerException} leaves the program. {@code null} leaves the callback to other participants.
 *
 * @param <Q> the request
 * @param <A> the answer
 */
@FunctionalInterface
public interface CallbackHandler<Q, A> {
	/**
	 * Answers a callback.
	 *
	 * @param request the request
	 * @return the answer; null leaves the callback to other participants
	 * @throws Exception there is no answer
	 */
	A handle(Q request) throws Exception;
}
