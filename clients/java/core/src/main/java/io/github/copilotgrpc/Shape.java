package io.github.copilotgrpc;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;

/** The JSON Schema of a type, and the conversion of JSON values to it. */
record Shape(JsonObject schema, Decoder decoder, boolean optional) {
	/** Converts a value. The path names its place for messages. */
	interface Decoder {
		Object decode(JsonElement value, String path) throws Mismatch;
	}

	Shape(JsonObject schema, Decoder decoder) {
		this(schema, decoder, false);
	}

	Shape described(Description description) {
		if (description == null) {
			return this;
		}
		JsonObject copy = schema.deepCopy();
		copy.addProperty("description", description.value());
		return new Shape(copy, decoder, optional);
	}
}
