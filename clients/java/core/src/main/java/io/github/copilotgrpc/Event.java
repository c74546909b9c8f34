package io.github.copilotgrpc;

import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.OneofDescriptor;
import com.google.protobuf.Message;
import io.github.copilotgrpc.cli.v1.SessionEvent;
import java.util.Optional;

/**
 * An event of a session.
 *
 * @param message the event, with its time, ids and original JSON
 */
public record Event(io.github.copilotgrpc.bridge.v1.Event message) implements StreamItem {
	private static final OneofDescriptor DATA = SessionEvent.getDescriptor().getOneofs().get(0);

	/**
	 * Returns the CLI's name of the type.
	 *
	 * @return the name, such as {@code assistant.message}
	 */
	public String type() {
		return message.getEvent().getEventType();
	}

	@Override
	public Position position() {
		return Position.of(message.getPosition());
	}

	/**
	 * Returns the typed data.
	 *
	 * @return a message such as AssistantMessageData; empty for a type that is newer than this library
	 */
	public Optional<Message> data() {
		FieldDescriptor field = message.getEvent().getOneofFieldDescriptor(DATA);
		return field == null || field.getJavaType() != FieldDescriptor.JavaType.MESSAGE
				? Optional.empty() : Optional.of((Message) message.getEvent().getField(field));
	}

	/**
	 * Returns the data if they are of a type.
	 *
	 * @param <T> the type
	 * @param type such as {@code AssistantMessageData.class}
	 * @return the data; empty if they are of another type
	 */
	public <T extends Message> Optional<T> data(Class<T> type) {
		return data().filter(type::isInstance).map(type::cast);
	}
}
