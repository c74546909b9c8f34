package io.github.copilotgrpc;

/** Decides about a permission request, in a thread of the client's executor; it may block. */
@FunctionalInterface
public interface PermissionHandler {
	/**
	 * Decides about a request.
	 *
	 * @param request the request
	 * @return the decision; null abstains
	 * @throws Exception there is no decision: the request is denied
	 */
	Decision decide(PermissionRequest request) throws Exception;
}
