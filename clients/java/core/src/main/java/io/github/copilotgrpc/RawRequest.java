package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.Answer;
import io.github.copilotgrpc.bridge.v1.Callback;

/**
 * A callback that is newer than this library.
 *
 * @param sessionId the session
 * @param callbackId id of the callback
 * @param method JSON-RPC method or event type
 * @param paramsJson its parameters, as JSON; empty for none
 */
public record RawRequest(String sessionId, String callbackId, String method, String paramsJson) {
	static Answer answer(Callback callback, CallbackHandler<RawRequest, ?> handler) throws Exception {
		Object result = handler.handle(new RawRequest(
				callback.getSessionId(), callback.getCallbackId(), callback.getRaw().getMethod(),
				callback.getRaw().getParamsJson()));
		return result == null ? Answers.abstain() : Answers.raw(result);
	}
}
