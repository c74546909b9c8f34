package io.github.copilotgrpc;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import io.github.copilotgrpc.Shape.Decoder;
import java.lang.reflect.Array;
import java.lang.reflect.GenericArrayType;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.lang.reflect.WildcardType;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/** JSON Schemas of Java types. */
final class Schema {
	// The records that contain the one in hand, to recognise a record that contains itself.
	private final Set<Class<?>> open = new LinkedHashSet<>();

	private Schema() {}

	/** The shape of a type. Throws IllegalArgumentException for a type that JSON cannot hold. */
	static Shape of(Type type) {
		return new Schema().shapeOf(type);
	}

	/** The shape of any object, with a given schema. */
	static Shape object(JsonObject schema) {
		return new Shape(schema, (value, path) -> {
			if (!value.isJsonObject()) {
				throw Mismatch.of(path, "an object", value);
			}
			return Json.plain(value);
		});
	}

	Shape shapeOf(Type type) {
		if (type instanceof ParameterizedType generic) {
			return generic(generic);
		}
		if (type instanceof GenericArrayType array) {
			throw new IllegalArgumentException("no JSON Schema for " + array + ": use a list");
		}
		if (type instanceof WildcardType wildcard) {
			return shapeOf(wildcard.getUpperBounds()[0]);
		}
		if (!(type instanceof Class<?> plain)) {
			throw unknown(type);
		}
		Shape scalar = Scalars.of(plain);
		if (scalar != null) {
			return scalar;
		}
		if (plain == Object.class) {
			return new Shape(new JsonObject(), (value, path) -> Json.plain(value));
		}
		if (plain.isEnum()) {
			return enumeration(plain);
		}
		if (plain.isRecord()) {
			return record(plain);
		}
		if (plain.isArray()) {
			return array(shapeOf(plain.getComponentType()), items -> {
				Object array = Array.newInstance(plain.getComponentType(), items.size());
				for (int i = 0; i < items.size(); i++) {
					Array.set(array, i, items.get(i));
				}
				return array;
			});
		}
		throw unknown(type);
	}

	private static IllegalArgumentException unknown(Type type) {
		return new IllegalArgumentException("no JSON Schema for " + type.getTypeName()
				+ ": use strings, numbers, booleans, enums, records, lists, maps and optionals of them");
	}

	private Shape generic(ParameterizedType type) {
		Type[] arguments = type.getActualTypeArguments();
		Object raw = type.getRawType();
		if (raw == Optional.class) {
			Shape content = shapeOf(arguments[0]);
			return new Shape(content.schema(), (value, path) -> value.isJsonNull()
					? Optional.empty() : Optional.of(content.decoder().decode(value, path)), true);
		}
		if (raw == List.class || raw == Collection.class || raw == Iterable.class) {
			return array(shapeOf(arguments[0]), items -> Collections.unmodifiableList(items));
		}
		if (raw == Set.class) {
			Shape shape = array(shapeOf(arguments[0]), items -> Collections.unmodifiableSet(new LinkedHashSet<>(items)));
			shape.schema().addProperty("uniqueItems", true);
			return shape;
		}
		if (raw == Map.class && arguments[0] == String.class) {
			return map(shapeOf(arguments[1]));
		}
		throw unknown(type);
	}

	private static Shape map(Shape content) {
		JsonObject schema = typed("object");
		schema.add("additionalProperties", content.schema());
		return new Shape(schema, (value, path) -> {
			if (!value.isJsonObject()) {
				throw Mismatch.of(path, "an object", value);
			}
			Map<String, Object> decoded = new LinkedHashMap<>();
			for (var entry : value.getAsJsonObject().entrySet()) {
				decoded.put(entry.getKey(), content.decoder().decode(entry.getValue(), join(path, entry.getKey())));
			}
			return Collections.unmodifiableMap(decoded);
		});
	}

	private interface Collect {
		Object of(List<Object> items);
	}

	private static Shape array(Shape content, Collect collect) {
		JsonObject schema = typed("array");
		schema.add("items", content.schema());
		return new Shape(schema, (value, path) -> {
			if (!value.isJsonArray()) {
				throw Mismatch.of(path, "an array", value);
			}
			List<Object> items = new ArrayList<>();
			for (JsonElement item : value.getAsJsonArray()) {
				items.add(content.decoder().decode(item, path + "[" + items.size() + "]"));
			}
			return collect.of(items);
		});
	}

	private static Shape enumeration(Class<?> type) {
		Map<String, Object> byName = new LinkedHashMap<>();
		for (Object constant : type.getEnumConstants()) {
			byName.put(((Enum<?>) constant).name(), constant);
		}
		JsonObject schema = typed("string");
		JsonArray names = new JsonArray();
		byName.keySet().forEach(names::add);
		schema.add("enum", names);
		String want = "one of " + byName.keySet().stream().map(name -> '"' + name + '"').collect(Collectors.joining(", "));
		return new Shape(schema, (value, path) -> {
			Object found = Scalars.isString(value) ? byName.get(value.getAsString()) : null;
			if (found == null) {
				throw new Mismatch(Mismatch.place(path) + ": expected " + want + ", got " + value);
			}
			return found;
		}).described(type.getAnnotation(Description.class));
	}

	private Shape record(Class<?> type) {
		if (!open.add(type)) {
			throw new IllegalArgumentException("record " + type.getSimpleName() + " contains itself");
		}
		Map<String, Shape> components = new LinkedHashMap<>();
		for (var component : type.getRecordComponents()) {
			Shape shape;
			try {
				shape = shapeOf(component.getGenericType());
			} catch (IllegalArgumentException e) {
				throw new IllegalArgumentException(component.getName() + ": " + e.getMessage(), e);
			}
			components.put(component.getName(), shape.described(component.getAnnotation(Description.class)));
		}
		open.remove(type);
		Decoder decoder = new RecordDecoder(type, components);
		return new Shape(recordSchema(components), decoder).described(type.getAnnotation(Description.class));
	}

	private static JsonObject recordSchema(Map<String, Shape> components) {
		JsonObject properties = new JsonObject();
		JsonArray required = new JsonArray();
		components.forEach((name, shape) -> {
			properties.add(name, shape.schema());
			if (!shape.optional()) {
				required.add(name);
			}
		});
		JsonObject schema = typed("object");
		schema.add("properties", properties);
		schema.addProperty("additionalProperties", false);
		if (!required.isEmpty()) {
			schema.add("required", required);
		}
		return schema;
	}

	static JsonObject typed(String type) {
		JsonObject schema = new JsonObject();
		schema.addProperty("type", type);
		return schema;
	}

	static String join(String path, String name) {
		return path.isEmpty() ? name : path + "." + name;
	}
}
