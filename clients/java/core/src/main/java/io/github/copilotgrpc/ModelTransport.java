package io.github.copilotgrpc;

import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.util.List;
import java.util.Map;

/** Answers the model requests of a session, in threads of the client's executor. */
@FunctionalInterface
public interface ModelTransport {
	/**
	 * An HTTP request to a model.
	 *
	 * @param requestId id of the request
	 * @param method HTTP method
	 * @param url absolute URL
	 * @param headers values by name
	 * @param body the body, as it arrives
	 */
	record Request(String requestId, String method, String url, Map<String, List<String>> headers, InputStream body) {}

	/**
	 * An HTTP response. A stream of events has the header content-type: text/event-stream.
	 *
	 * @param status HTTP status
	 * @param headers values by name
	 * @param body the body; it is read while it is sent, and closed
	 */
	record Reply(int status, Map<String, List<String>> headers, InputStream body) {
		/**
		 * Makes a response with a body in memory.
		 *
		 * @param status HTTP status
		 * @param headers values by name
		 * @param body the body
		 */
		public Reply(int status, Map<String, List<String>> headers, byte[] body) {
			this(status, headers, new ByteArrayInputStream(body));
		}
	}

	/**
	 * Answers a request. The thread is interrupted if the answer is no longer needed.
	 *
	 * @param request the request
	 * @return the response
	 * @throws Exception the response ends like a broken connection; the CLI may retry
	 */
	Reply send(Request request) throws Exception;
}
