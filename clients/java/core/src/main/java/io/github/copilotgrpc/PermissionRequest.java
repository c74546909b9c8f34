package io.github.copilotgrpc;

import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.cli.v1.PermissionRequestedData;
import java.util.Optional;

/**
 * The agent asks for permission to do something.
 *
 * @param sessionId the session
 * @param callbackId id of the callback, as in {@link CopilotSession#resolve}
 * @param kind kind of the action: "shell", "write", "read", "url", "mcp", "custom-tool", "memory" and others
 * @param action the details, as a message of that kind such as PermissionRequestShell; empty for an unknown kind
 * @param data everything that the CLI says about the request
 */
public record PermissionRequest(
		String sessionId, String callbackId, String kind, Optional<Message> action, PermissionRequestedData data) {
	static PermissionRequest of(Callback callback) {
		PermissionRequestedData data = callback.getPermission();
		var request = data.getPermissionRequest();
		FieldDescriptor field = request.getOneofFieldDescriptor(request.getDescriptorForType().getOneofs().get(0));
		String kind = field == null ? "" : field.getName().replace('_', '-');
		Optional<Message> action = Optional.empty();
		if (field != null && request.hasUnrecognized()) {
			var value = Json.parse(request.getUnrecognized());
			var name = value.isJsonObject() ? value.getAsJsonObject().get("kind") : null;
			kind = name != null && Scalars.isString(name) ? name.getAsString() : "";
		} else if (field != null) {
			action = Optional.of((Message) request.getField(field));
		}
		return new PermissionRequest(callback.getSessionId(), callback.getCallbackId(), kind, action, data);
	}
}
