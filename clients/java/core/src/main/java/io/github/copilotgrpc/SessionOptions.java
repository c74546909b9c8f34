package io.github.copilotgrpc;

import com.google.protobuf.FieldMask;
import io.github.copilotgrpc.bridge.v1.AttachStart;
import io.github.copilotgrpc.bridge.v1.CreateSessionRequest;
import io.github.copilotgrpc.bridge.v1.Handlers;
import io.github.copilotgrpc.bridge.v1.ModelInference;
import io.github.copilotgrpc.bridge.v1.ResumeSessionRequest;
import io.github.copilotgrpc.bridge.v1.RuntimeProfile;
import io.github.copilotgrpc.cli.v1.SessionConfig;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.function.Consumer;

/**
 * How a session works, with the tools and handlers of a participant: the same options create, resume and open
 * sessions. A session that exists keeps the values that are not given. {@link #label}, {@link #nodeLabel} and {@link
 * #sessionId} matter only if the session is created. Not safe for concurrent use.
 */
public final class SessionOptions extends HandlerOptions<SessionOptions> {
	private final SessionConfig.Builder config = SessionConfig.newBuilder();
	private final FieldMask.Builder cleared = FieldMask.newBuilder();
	private String sessionId = "";
	private String requestId = "";
	private String providerRef = "";
	private final Map<String, String> labels = new LinkedHashMap<>();
	private final Map<String, String> nodeLabels = new LinkedHashMap<>();
	private Lifetime lifetime; // null for the default
	private OnInterruption onInterruption; // null for the default
	private Handlers sessionHandlers;
	private Duration callbackTimeout;
	private RuntimeProfile profile;
	private boolean continuePendingWork;

	/** The server's defaults, without tools and handlers. */
	public SessionOptions() {}

	@Override
	SessionOptions self() {
		return this;
	}

	/**
	 * Sets the id of a session that {@link CopilotClient#createSession} creates: letters, digits, '-' and '_', at most
	 * 128 characters. Default: a random UUID.
	 *
	 * @param id the id
	 * @return these options
	 */
	public SessionOptions sessionId(String id) {
		sessionId = Objects.requireNonNull(id);
		return this;
	}

	/**
	 * Adds a label to a new session, by which sessions can be listed. A session that exists keeps its labels.
	 *
	 * @param name name of the label
	 * @param value its value
	 * @return these options
	 */
	public SessionOptions label(String name, String value) {
		labels.put(Objects.requireNonNull(name), Objects.requireNonNull(value));
		return this;
	}

	/**
	 * Adds a label that the server of a new session must have, as in a cluster whose replicas have different directories.
	 *
	 * @param name the name
	 * @param value the value
	 * @return these options
	 */
	public SessionOptions nodeLabel(String name, String value) {
		nodeLabels.put(Objects.requireNonNull(name), Objects.requireNonNull(value));
		return this;
	}

	/**
	 * Sets the model.
	 *
	 * @param modelId the model's id
	 * @return these options
	 */
	public SessionOptions model(String modelId) {
		config.setModel(modelId);
		return this;
	}

	/**
	 * Sets the session's directory on the CLI's machine.
	 *
	 * @param path the directory
	 * @return these options
	 */
	public SessionOptions workingDirectory(String path) {
		config.setWorkingDirectory(path);
		return this;
	}

	/**
	 * Sets whether the model's text arrives in pieces, as {@link Turn#deltas} reads it. Default: it does.
	 *
	 * @param wanted false for whole messages
	 * @return these options
	 */
	public SessionOptions streaming(boolean wanted) {
		config.setStreaming(wanted);
		return this;
	}

	/**
	 * Changes the configuration: provider, instructions, directories and so on.
	 *
	 * @param change changes the configuration
	 * @return these options
	 */
	public SessionOptions configure(Consumer<SessionConfig.Builder> change) {
		change.accept(config);
		return this;
	}

	/**
	 * Clears fields of the configuration: a list or map becomes empty, any other field is removed. An empty list or map
	 * in {@link #configure} changes nothing; fields with a value there are set. A session that is created loses the
	 * values that the server gives to new sessions.
	 *
	 * @param fields the names of the fields in the API, such as "mcp_servers"
	 * @return these options
	 */
	public SessionOptions clear(String... fields) {
		cleared.addAllPaths(List.of(fields));
		return this;
	}

	/**
	 * Uses a model provider of the server's configuration.
	 *
	 * @param name the provider's name there
	 * @return these options
	 */
	public SessionOptions provider(String name) {
		providerRef = Objects.requireNonNull(name);
		return this;
	}

	/**
	 * Sets when the session ends. Default: {@link Lifetime#KEEP}.
	 *
	 * @param value the lifetime
	 * @return these options
	 */
	public SessionOptions lifetime(Lifetime value) {
		lifetime = Objects.requireNonNull(value);
		return this;
	}

	/**
	 * Sets the server's reaction to a turn that ends with its CLI process. Default: {@link OnInterruption#REPORT}.
	 *
	 * @param value the reaction
	 * @return these options
	 */
	public SessionOptions interruptedTurns(OnInterruption value) {
		onInterruption = Objects.requireNonNull(value);
		return this;
	}

	/**
	 * Sets callbacks that wait for {@link CopilotSession#resolve} even if no participant handles them.
	 *
	 * @param handlers the kinds
	 * @return these options
	 */
	public SessionOptions sessionHandlers(Handlers handlers) {
		sessionHandlers = Objects.requireNonNull(handlers);
		return this;
	}

	/**
	 * Sets the time for which callbacks wait for an answer. Default: the server's.
	 *
	 * @param time 1 ms to 30 days
	 * @return these options
	 */
	public SessionOptions callbackTimeout(Duration time) {
		callbackTimeout = Objects.requireNonNull(time);
		return this;
	}

	/**
	 * Sets the profile of the CLI process. Default: the server's.
	 *
	 * @param value the profile
	 * @return these options
	 */
	public SessionOptions runtimeProfile(RuntimeProfile value) {
		profile = Objects.requireNonNull(value);
		return this;
	}

	/**
	 * Makes the call idempotent across restarts of this program. Default: a random id.
	 *
	 * @param id the id, at most 128 characters
	 * @return these options
	 */
	public SessionOptions requestId(String id) {
		requestId = Objects.requireNonNull(id);
		return this;
	}

	/**
	 * Keeps the callbacks of a resumed session that were pending when it was unloaded.
	 *
	 * @return these options
	 */
	public SessionOptions continuePendingWork() {
		continuePendingWork = true;
		return this;
	}

	/** The id of a new session; empty for a random one. */
	String sessionId() {
		return sessionId;
	}

	AttachStart create(String newId, HandlerSet set, io.github.copilotgrpc.Handlers handlers) {
		CreateSessionRequest.Builder create = CreateSessionRequest.newBuilder()
				.setRequestId(id()).setSessionId(newId).setConfig(config(handlers))
				.setProviderRef(providerRef).putAllLabels(labels).putAllNodeLabels(nodeLabels);
		if (lifetime != null) {
			create.setLifetime(lifetime.proto());
		}
		if (onInterruption != null) {
			create.setOnInterruption(onInterruption.proto());
		}
		if (cleared.getPathsCount() > 0) {
			create.setUpdateMask(cleared);
		}
		if (sessionHandlers != null) {
			create.setHandlers(sessionHandlers);
		}
		if (callbackTimeout != null) {
			create.setCallbackTimeout(Starts.message(callbackTimeout));
		}
		RuntimeProfile whole = profile(set);
		if (whole != null) {
			create.setRuntimeProfile(whole);
		}
		return AttachStart.newBuilder().setCreate(create).build();
	}

	AttachStart resume(String resumedId, HandlerSet set, io.github.copilotgrpc.Handlers handlers) {
		ResumeSessionRequest.Builder resume = ResumeSessionRequest.newBuilder()
				.setRequestId(id()).setSessionId(resumedId).setConfig(config(handlers))
				.setProviderRef(providerRef).setContinuePendingWork(continuePendingWork);
		if (lifetime != null) {
			resume.setLifetime(lifetime.proto());
		}
		if (onInterruption != null) {
			resume.setOnInterruption(onInterruption.proto());
		}
		if (cleared.getPathsCount() > 0) {
			resume.setUpdateMask(cleared);
		}
		if (sessionHandlers != null) {
			resume.setHandlers(sessionHandlers);
		}
		if (callbackTimeout != null) {
			resume.setCallbackTimeout(Starts.message(callbackTimeout));
		}
		RuntimeProfile whole = profile(set);
		if (whole != null) {
			resume.setRuntimeProfile(whole);
		}
		return AttachStart.newBuilder().setResume(resume).build();
	}

	private String id() {
		return requestId.isEmpty() ? UUID.randomUUID().toString() : requestId;
	}

	private SessionConfig config(io.github.copilotgrpc.Handlers handlers) {
		SessionConfig.Builder whole = config.clone().addAllTools(handlers.declaredTools(true));
		if (!whole.hasStreaming() && !cleared.getPathsList().contains("streaming")) {
			whole.setStreaming(true);
		}
		return whole.build();
	}

	/** The profile of the CLI process, with what this participant provides; null for the server's. */
	private RuntimeProfile profile(HandlerSet set) {
		if (set.files() == null && set.models() == null) {
			return profile;
		}
		RuntimeProfile.Builder whole = profile == null ? RuntimeProfile.newBuilder() : profile.toBuilder();
		if (set.files() != null && !whole.hasSessionFs()) {
			whole.setSessionFs(set.files().message());
		}
		if (set.models() != null && !whole.hasModelInference()) {
			whole.setModelInference(ModelInference.getDefaultInstance());
		}
		return whole.build();
	}
}
