package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.PendingFilter;
import io.github.copilotgrpc.bridge.v1.WatchPendingRequest;
import java.time.Duration;
import java.util.function.Consumer;
import java.util.stream.Stream;

/**
 * Which pending callbacks to watch, and whether to handle them. Immutable: the methods return changed copies.
 *
 * <p>The default: the callbacks of all sessions that the caller can see, without those of session files and model
 * requests, which are frequent.
 */
public final class PendingQuery {
	private static final PendingQuery ALL = new PendingQuery(WatchPendingRequest.getDefaultInstance());

	private final WatchPendingRequest request;

	private PendingQuery(WatchPendingRequest request) {
		this.request = request;
	}

	/**
	 * Returns the default query.
	 *
	 * @return the query
	 */
	public static PendingQuery all() {
		return ALL;
	}

	/**
	 * Also handles the callbacks while the stream lasts: they wait for an answer, instead of getting their default answers
	 * at once. By default, the kinds are those that people answer. Requires the role participant.
	 *
	 * @return the changed copy
	 */
	public PendingQuery handle() {
		return new PendingQuery(request.toBuilder().setHandle(true).build());
	}

	/**
	 * Watches only some kinds.
	 *
	 * @param kinds the kinds
	 * @return the changed copy
	 * @throws IllegalArgumentException a kind is UNKNOWN
	 */
	public PendingQuery kinds(CallbackKind... kinds) {
		return change(filter -> filter.clearKinds().addAllKinds(Stream.of(kinds).map(CallbackKind::proto).toList()));
	}

	/**
	 * Watches only sessions with a label. With several labels, a session must have all of them.
	 *
	 * @param name name of the label
	 * @param value its value
	 * @return the changed copy
	 */
	public PendingQuery label(String name, String value) {
		return change(filter -> filter.putLabels(name, value));
	}

	/**
	 * Watches only sessions of a tenant. Default: the caller's tenant, and all tenants that share sessions with it.
	 *
	 * @param tenant name of the tenant
	 * @return the changed copy
	 */
	public PendingQuery owner(String tenant) {
		return change(filter -> filter.setOwner(tenant));
	}

	/**
	 * Sets the time for which the caller remains a handler after the stream has ended.
	 *
	 * @param time 0 s to 1 h; default 30 s
	 * @return the changed copy
	 */
	public PendingQuery grace(Duration time) {
		return new PendingQuery(request.toBuilder().setGrace(Starts.message(time)).build());
	}

	private PendingQuery change(Consumer<PendingFilter.Builder> change) {
		WatchPendingRequest.Builder changed = request.toBuilder();
		change.accept(changed.getFilterBuilder());
		return new PendingQuery(changed.build());
	}

	WatchPendingRequest request(String name) {
		return request.toBuilder().setName(name).build();
	}
}
