package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.CallbackServiceGrpc;
import io.github.copilotgrpc.bridge.v1.DeleteSessionRequest;
import io.github.copilotgrpc.bridge.v1.DisconnectSessionRequest;
import io.github.copilotgrpc.bridge.v1.GetSessionRequest;
import io.github.copilotgrpc.bridge.v1.ListPendingRequest;
import io.github.copilotgrpc.bridge.v1.SessionServiceGrpc;
import io.github.copilotgrpc.bridge.v1.SetModelRequest;
import io.github.copilotgrpc.bridge.v1.UpdateLabelsRequest;
import io.github.copilotgrpc.bridge.v1.WriteLogRequest;
import io.grpc.MethodDescriptor;
import java.util.Collection;
import java.util.List;
import java.util.Map;

/** Makes the unary calls about a session, and waits for their replies. */
record SessionCalls(Connection connection, String sessionId, Progress progress) {
	SessionInfo get() {
		GetSessionRequest request = GetSessionRequest.newBuilder().setSessionId(sessionId).build();
		return new SessionInfo(call(SessionServiceGrpc.getGetSessionMethod(), request).getSession());
	}

	String setModel(String modelId) {
		SetModelRequest request = SetModelRequest.newBuilder().setSessionId(sessionId).setModelId(modelId).build();
		return call(SessionServiceGrpc.getSetModelMethod(), request).getModelId();
	}

	Map<String, String> updateLabels(Map<String, String> set, Collection<String> remove) {
		UpdateLabelsRequest request = UpdateLabelsRequest.newBuilder()
				.setSessionId(sessionId).putAllSet(set).addAllRemove(remove).build();
		return call(SessionServiceGrpc.getUpdateLabelsMethod(), request).getSession().getLabelsMap();
	}

	String log(String message) {
		WriteLogRequest request = WriteLogRequest.newBuilder().setSessionId(sessionId).setMessage(message).build();
		return call(SessionServiceGrpc.getWriteLogMethod(), request).getEventId();
	}

	List<PendingCallback> pending() {
		ListPendingRequest request = ListPendingRequest.newBuilder().setSessionId(sessionId).build();
		return call(CallbackServiceGrpc.getListPendingMethod(), request).getCallbacksList().stream()
				.map(callback -> new PendingCallback(connection, callback)).toList();
	}

	void disconnect() {
		DisconnectSessionRequest request = DisconnectSessionRequest.newBuilder().setSessionId(sessionId).build();
		call(SessionServiceGrpc.getDisconnectSessionMethod(), request);
	}

	void delete() {
		DeleteSessionRequest request = DeleteSessionRequest.newBuilder().setSessionId(sessionId).build();
		call(SessionServiceGrpc.getDeleteSessionMethod(), request);
	}

	private <Q, A> A call(MethodDescriptor<Q, A> method, Q request) {
		return Futures.await(connection.unary(method, request, progress));
	}
}
