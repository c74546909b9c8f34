package io.github.copilotgrpc;

import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.RecordComponent;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** Makes records of JSON objects. */
final class RecordDecoder implements Shape.Decoder {
	private final Constructor<?> constructor;
	private final Map<String, Shape> components;

	RecordDecoder(Class<?> type, Map<String, Shape> components) {
		this.components = components;
		Class<?>[] types = Arrays.stream(type.getRecordComponents())
				.map(RecordComponent::getType).toArray(Class<?>[]::new);
		try {
			constructor = type.getDeclaredConstructor(types);
			constructor.setAccessible(true); // records may be private
		} catch (ReflectiveOperationException | RuntimeException e) {
			throw new IllegalArgumentException(type.getName() + " cannot be constructed: " + e.getMessage(), e);
		}
	}

	@Override
	public Object decode(JsonElement value, String path) throws Mismatch {
		if (!value.isJsonObject()) {
			throw Mismatch.of(path, "an object", value);
		}
		JsonObject object = value.getAsJsonObject();
		List<String> problems = new ArrayList<>();
		for (String name : object.keySet()) {
			if (!components.containsKey(name)) {
				problems.add(Schema.join(path, name) + ": is unknown");
			}
		}
		List<Object> arguments = new ArrayList<>();
		components.forEach((name, shape) -> {
			JsonElement member = object.get(name);
			if (member == null && !shape.optional()) {
				problems.add(Schema.join(path, name) + ": is missing");
				return;
			}
			try {
				JsonElement given = member == null ? JsonNull.INSTANCE : member;
				arguments.add(shape.decoder().decode(given, Schema.join(path, name)));
			} catch (Mismatch e) {
				problems.add(e.getMessage());
			}
		});
		if (!problems.isEmpty()) {
			throw new Mismatch(String.join("; ", problems));
		}
		return construct(arguments, path);
	}

	private Object construct(List<Object> arguments, String path) throws Mismatch {
		try {
			return constructor.newInstance(arguments.toArray());
		} catch (InvocationTargetException e) {
			if (e.getCause() instanceof IllegalArgumentException refusal) {
				throw new Mismatch(Mismatch.place(path) + ": " + refusal.getMessage());
			}
			throw new IllegalStateException(e.getCause());
		} catch (ReflectiveOperationException e) {
			throw new IllegalStateException(e);
		}
	}
}
