package io.github.copilotgrpc;

import com.google.gson.JsonElement;

/** A JSON value does not fit its type; the text names the place. */
final class Mismatch extends Exception {
	private static final long serialVersionUID = 1L;

	Mismatch(String message) {
		super(message, null, false, false);
	}

	static Mismatch of(String path, String want, JsonElement got) {
		return new Mismatch(place(path) + ": expected " + want + ", got " + name(got));
	}

	static String place(String path) {
		return path.isEmpty() ? "the arguments" : path;
	}

	private static String name(JsonElement value) {
		if (value.isJsonNull()) {
			return "null";
		}
		if (value.isJsonArray()) {
			return "an array";
		}
		if (value.isJsonObject()) {
			return "an object";
		}
		var primitive = value.getAsJsonPrimitive();
		return primitive.isString() ? "a string" : primitive.isBoolean() ? "a boolean" : "a number";
	}
}
