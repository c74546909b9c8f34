package io.github.copilotgrpc;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import com.google.gson.JsonSyntaxException;
import com.google.gson.Strictness;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import java.io.IOException;
import java.io.StringReader;
import java.lang.reflect.Array;
import java.lang.reflect.RecordComponent;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** JSON of the values of programs. */
final class Json {
	private static final int MAX_DEPTH = 200;

	private Json() {}

	/** Reads JSON, strictly. Throws JsonParseException. */
	static JsonElement parse(String text) {
		JsonReader reader = new JsonReader(new StringReader(text));
		reader.setStrictness(Strictness.STRICT);
		try {
			if (text.isBlank()) {
				throw new JsonSyntaxException("the text is empty");
			}
			JsonElement value = JsonParser.parseReader(reader);
			if (reader.peek() != JsonToken.END_DOCUMENT) {
				throw new JsonSyntaxException("there is more than one value");
			}
			return value;
		} catch (IOException e) {
			throw new JsonSyntaxException(e);
		} catch (StackOverflowError e) {
			throw new JsonSyntaxException("the value is nested too deep");
		}
	}

	/** A JSON value as string, number, boolean, list, map or null. */
	static Object plain(JsonElement value) {
		if (value.isJsonNull()) {
			return null;
		}
		if (value.isJsonArray()) {
			List<Object> items = new ArrayList<>();
			value.getAsJsonArray().forEach(item -> items.add(plain(item)));
			return Collections.unmodifiableList(items);
		}
		if (value.isJsonObject()) {
			Map<String, Object> members = new LinkedHashMap<>();
			value.getAsJsonObject().entrySet().forEach(entry -> members.put(entry.getKey(), plain(entry.getValue())));
			return Collections.unmodifiableMap(members);
		}
		JsonPrimitive primitive = value.getAsJsonPrimitive();
		if (primitive.isBoolean()) {
			return primitive.getAsBoolean();
		}
		return primitive.isString() ? primitive.getAsString() : number(primitive);
	}

	/** Integers as Long where they fit, other numbers as Double. */
	private static Number number(JsonPrimitive value) {
		try {
			return Long.valueOf(value.getAsString());
		} catch (NumberFormatException e) {
			return value.getAsDouble();
		}
	}

	/** The map that a JSON object has become. */
	static Map<String, Object> asMap(Object value) {
		@SuppressWarnings("unchecked") // `plain` made it
		Map<String, Object> map = (Map<String, Object>) value;
		return map;
	}

	/** The JSON text of a value. Throws IllegalArgumentException if JSON cannot hold it. */
	static String write(Object value) {
		return element(value, 0).toString();
	}

	private static JsonElement element(Object value, int depth) {
		if (depth > MAX_DEPTH) {
			throw new IllegalArgumentException("the value is nested too deep, or contains itself");
		}
		if (value == null) {
			return JsonNull.INSTANCE;
		}
		if (value instanceof JsonElement json) {
			return json;
		}
		if (value instanceof Optional<?> optional) {
			return element(optional.orElse(null), depth + 1);
		}
		if (value instanceof Boolean bool) {
			return new JsonPrimitive(bool);
		}
		if (value instanceof Number number) {
			if (!Double.isFinite(number.doubleValue()) && (number instanceof Double || number instanceof Float)) {
				throw new IllegalArgumentException("JSON cannot hold the number " + number);
			}
			return new JsonPrimitive(number);
		}
		if (value instanceof Enum<?> constant) {
			return new JsonPrimitive(constant.name());
		}
		if (value instanceof Map<?, ?> map) {
			JsonObject object = new JsonObject();
			map.forEach((key, member) -> object.add(String.valueOf(key), element(member, depth + 1)));
			return object;
		}
		if (value instanceof Iterable<?> items && !(value instanceof java.nio.file.Path)) {
			JsonArray array = new JsonArray();
			items.forEach(item -> array.add(element(item, depth + 1)));
			return array;
		}
		return value.getClass().isArray() ? array(value, depth)
				: value instanceof Record data ? record(data, depth) : scalar(value);
	}

	private static JsonElement array(Object value, int depth) {
		JsonArray array = new JsonArray();
		for (int i = 0; i < Array.getLength(value); i++) {
			array.add(element(Array.get(value, i), depth + 1));
		}
		return array;
	}

	private static JsonElement record(Record value, int depth) {
		JsonObject object = new JsonObject();
		for (RecordComponent component : value.getClass().getRecordComponents()) {
			try {
				component.getAccessor().setAccessible(true); // records may be private
				object.add(component.getName(), element(component.getAccessor().invoke(value), depth + 1));
			} catch (ReflectiveOperationException e) {
				throw new IllegalArgumentException("record " + value.getClass().getName() + " cannot be read", e);
			}
		}
		return object;
	}

	private static JsonElement scalar(Object value) {
		boolean known = value instanceof CharSequence || value instanceof Character
				|| value instanceof java.time.temporal.Temporal || value instanceof java.time.Duration
				|| value instanceof java.util.UUID || value instanceof java.net.URI
				|| value instanceof java.nio.file.Path;
		if (!known) {
			throw new IllegalArgumentException("JSON cannot hold a " + value.getClass().getName()
					+ ": use records, lists, maps, strings, numbers and booleans");
		}
		return new JsonPrimitive(value.toString());
	}
}
