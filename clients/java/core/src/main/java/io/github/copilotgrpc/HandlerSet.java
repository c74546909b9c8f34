package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.AttachStart;
import io.github.copilotgrpc.cli.v1.CommandDeclaration;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/**
 * What a participant brings: tools and handlers.
 *
 * @param permission null for none
 * @param grace null for the server's default
 * @param files null for none
 * @param models null for none
 * @param connectionListener null for none
 */
record HandlerSet(
		String name, Map<String, Tool> tools, PermissionHandler permission,
		Map<CallbackType<?, ?>, CallbackHandler<?, ?>> byKind, Map<HookType<?, ?>, CallbackHandler<?, ?>> hooks,
		Map<String, CallbackHandler<RawRequest, ?>> raw, List<CommandDeclaration> commands, int maxConcurrentTools,
		Duration grace, SessionFiles files, ModelTransport models, Consumer<ConnectionEvent> connectionListener,
		Consumer<AttachStart.Builder> customizer) {
	/** The same with the handlers of model requests. */
	HandlerSet with(Models transport) {
		Map<CallbackType<?, ?>, CallbackHandler<?, ?>> more = new LinkedHashMap<>(byKind);
		transport.addHandlers(more);
		return new HandlerSet(name, tools, permission, more, hooks, raw, commands, maxConcurrentTools, grace, files,
				models, connectionListener, customizer);
	}
}
