package io.github.copilotgrpc;

import io.github.copilotgrpc.cli.v1.CallbackExitPlanModeServiceRequestRequest;
import io.github.copilotgrpc.cli.v1.CallbackExitPlanModeServiceRequestResponse;
import io.github.copilotgrpc.cli.v1.StringList;
import io.github.copilotgrpc.cli.v1.UIElicitationFieldValue;
import io.github.copilotgrpc.cli.v1.UIElicitationResponse;
import io.github.copilotgrpc.cli.v1.UIElicitationResponseAction;
import java.util.Collection;
import java.util.Map;
import java.util.Optional;

/** Messages of the answers that have a short form. */
final class ShortAnswers {
	private ShortAnswers() {}

	static UIElicitationResponse elicitation(Optional<Map<String, Object>> content) {
		UIElicitationResponse.Builder response = UIElicitationResponse.newBuilder();
		if (content.isEmpty()) {
			return response.setAction(UIElicitationResponseAction.UI_ELICITATION_RESPONSE_ACTION_DECLINE).build();
		}
		content.get().forEach((name, value) -> response.putContent(name, formValue(name, value)));
		return response.setAction(UIElicitationResponseAction.UI_ELICITATION_RESPONSE_ACTION_ACCEPT).build();
	}

	private static UIElicitationFieldValue formValue(String name, Object value) {
		UIElicitationFieldValue.Builder field = UIElicitationFieldValue.newBuilder();
		if (value instanceof Boolean bool) {
			return field.setBoolValue(bool).build();
		}
		if (value instanceof Number number) {
			return field.setDoubleValue(number.doubleValue()).build();
		}
		if (value instanceof Collection<?> items) {
			StringList.Builder list = StringList.newBuilder();
			items.forEach(item -> list.addItems(String.valueOf(item)));
			return field.setList(list).build();
		}
		if (value instanceof CharSequence || value instanceof Enum<?>) {
			return field.setStringValue(value.toString()).build();
		}
		throw new IllegalArgumentException(
				"field " + name + " of the form is neither a string, a number, a boolean nor a list: " + value);
	}

	static CallbackExitPlanModeServiceRequestResponse exitPlanMode(
			CallbackExitPlanModeServiceRequestRequest request, boolean approved) {
		CallbackExitPlanModeServiceRequestResponse.Builder response =
				CallbackExitPlanModeServiceRequestResponse.newBuilder().setApproved(approved);
		if (approved) {
			response.setSelectedAction(request.getRecommendedAction());
		}
		return response.build();
	}
}
