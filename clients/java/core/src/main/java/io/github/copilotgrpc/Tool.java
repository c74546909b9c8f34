package io.github.copilotgrpc;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import io.github.copilotgrpc.cli.v1.ToolDefinition;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.regex.Pattern;

/**
 * A function of this program that the agent can call. Immutable.
 *
 * <p>The arguments are a record; the JSON Schema follows from its components. A component may be a string, a
 * number, a boolean, an enum, another record, a list, a set or an array of these, a map with strings as keys, or
 * {@link Object} for any JSON value. Components of type {@link java.util.Optional} may be absent. {@link
 * Description} describes a component. Arguments that do not fit the schema are refused in words that the model can
 * read, without a call of the function; so is an {@link IllegalArgumentException} of the record's constructor.
 *
 * <p>The model reads the result: a string as it is, null as "Done.", a {@link ToolResult} as it says, anything else
 * as JSON. A {@link java.util.concurrent.CompletionStage} completes with one of these later. The text of a {@link
 * ToolException} reaches the model; of any other exception the model reads "The tool failed.". Both are logged.
 *
 * <p>Functions run in threads of the client's executor. A thread is interrupted if the result is no longer needed.
 */
public final class Tool {
	private static final String MISFIT = "The arguments do not fit: ";
	private static final Pattern NAME = Pattern.compile("[a-zA-Z0-9_-]+");

	private final ToolDefinition definition;
	private final Shape shape;
	private final ToolCallFunction<Object> function; // null for a tool without a function
	private final boolean ownedBySession;

	private Tool(ToolDefinition definition, Shape shape, ToolCallFunction<Object> function, boolean ownedBySession) {
		this.definition = definition;
		this.shape = shape;
		this.function = function;
		this.ownedBySession = ownedBySession;
	}

	/**
	 * Makes a tool.
	 *
	 * @param <T> type of the arguments
	 * @param name name for the agent; matches {@code [a-zA-Z0-9_-]+}
	 * @param description description for the agent
	 * @param arguments the record of the arguments
	 * @param function the code
	 * @return the tool
	 * @throws IllegalArgumentException the name is invalid, or a component has a type without a JSON Schema
	 */
	public static <T extends Record> Tool of(
			String name, String description, Class<T> arguments, ToolFunction<? super T> function) {
		Objects.requireNonNull(function);
		return of(name, description, arguments, (T value, ToolCall call) -> function.call(value));
	}

	/**
	 * Makes a tool that also receives the ids of its calls.
	 *
	 * @param <T> type of the arguments
	 * @param name name for the agent; matches {@code [a-zA-Z0-9_-]+}
	 * @param description description for the agent
	 * @param arguments the record of the arguments
	 * @param function the code
	 * @return the tool
	 * @throws IllegalArgumentException the name is invalid, or a component has a type without a JSON Schema
	 */
	public static <T extends Record> Tool of(
			String name, String description, Class<T> arguments, ToolCallFunction<? super T> function) {
		Objects.requireNonNull(function);
		return make(name, description, shapeOf(name, arguments),
				(value, call) -> function.call(arguments.cast(value), call));
	}

	/**
	 * Makes a tool with a JSON Schema. The function receives strings, numbers, booleans, lists, maps and nulls; the
	 * program checks them.
	 *
	 * @param name name for the agent; matches {@code [a-zA-Z0-9_-]+}
	 * @param description description for the agent
	 * @param jsonSchema JSON Schema of the arguments, an object
	 * @param function the code
	 * @return the tool
	 * @throws IllegalArgumentException the name is invalid, or the schema is no JSON object
	 */
	public static Tool ofSchema(
			String name, String description, String jsonSchema, ToolCallFunction<Map<String, Object>> function) {
		Objects.requireNonNull(function);
		JsonElement schema;
		try {
			schema = Json.parse(jsonSchema);
		} catch (JsonParseException e) {
			throw new IllegalArgumentException("the schema of tool " + name + " is no JSON: " + e.getMessage(), e);
		}
		if (!schema.isJsonObject()) {
			throw new IllegalArgumentException("the schema of tool " + name + " is no JSON object");
		}
		return make(name, description, Schema.object(schema.getAsJsonObject()),
				(value, call) -> function.call(Json.asMap(value), call));
	}

	/**
	 * Declares a tool without a function: its calls are answered with {@link CopilotSession#resolve}.
	 *
	 * @param <T> type of the arguments
	 * @param name name for the agent; matches {@code [a-zA-Z0-9_-]+}
	 * @param description description for the agent
	 * @param arguments the record of the arguments
	 * @return the tool
	 * @throws IllegalArgumentException the name is invalid, or a component has a type without a JSON Schema
	 */
	public static <T extends Record> Tool declared(String name, String description, Class<T> arguments) {
		return make(name, description, shapeOf(name, arguments), null);
	}

	private static Shape shapeOf(String name, Class<?> arguments) {
		try {
			return Schema.of(arguments);
		} catch (IllegalArgumentException e) {
			throw new IllegalArgumentException("tool " + name + ": " + e.getMessage(), e);
		}
	}

	private static Tool make(String name, String description, Shape shape, ToolCallFunction<Object> function) {
		if (!NAME.matcher(name).matches()) {
			throw new IllegalArgumentException("tool name \"" + name + "\" does not match [a-zA-Z0-9_-]+");
		}
		ToolDefinition definition = ToolDefinition.newBuilder().setName(name).setDescription(description)
				.setParametersJson(shape.schema().toString()).build();
		return new Tool(definition, shape, function, false);
	}

	/**
	 * Returns a copy that the agent calls without a permission request.
	 *
	 * @return the tool
	 */
	public Tool skipPermission() {
		return with(definition.toBuilder().setSkipPermission(true).build());
	}

	/**
	 * Returns a copy that replaces a built-in tool of the same name.
	 *
	 * @return the tool
	 */
	public Tool overrideBuiltIn() {
		return with(definition.toBuilder().setOverridesBuiltInTool(true).build());
	}

	/**
	 * Returns a copy that stays with the session when the participant leaves. Only for {@link SessionOptions}.
	 *
	 * @return the tool
	 */
	public Tool ownedBySession() {
		return new Tool(definition, shape, function, true);
	}

	/**
	 * Returns a copy with another definition: its title, its metadata and so on.
	 *
	 * @param changed the definition, with the same name
	 * @return the tool
	 */
	public Tool with(ToolDefinition changed) {
		if (!changed.getName().equals(name())) {
			throw new IllegalArgumentException("the definition has another name: " + changed.getName());
		}
		return new Tool(changed, shape, function, ownedBySession);
	}

	/**
	 * Returns the name.
	 *
	 * @return the name
	 */
	public String name() {
		return definition.getName();
	}

	/**
	 * Returns the tool as the agent sees it, with its JSON Schema.
	 *
	 * @return the definition
	 */
	public ToolDefinition definition() {
		return definition;
	}

	boolean isOwnedBySession() {
		return ownedBySession;
	}

	boolean hasFunction() {
		return function != null;
	}

	/** Executes a call. If the arguments do not fit, the result says so in words for the model. */
	Object call(String argumentsJson, ToolCall call) throws Exception {
		Object arguments;
		try {
			JsonElement value = argumentsJson.isEmpty() ? new JsonObject() : Json.parse(argumentsJson);
			arguments = shape.decoder().decode(value, "");
		} catch (JsonParseException e) {
			return ToolResult.failure(MISFIT + "they are not valid JSON.");
		} catch (Mismatch e) {
			return ToolResult.failure(MISFIT + e.getMessage() + ".");
		}
		return function.call(arguments, call);
	}

	/** Tools by their names. Throws IllegalArgumentException if two have the same. */
	static Map<String, Tool> byName(List<Tool> tools) {
		Map<String, Tool> found = new LinkedHashMap<>();
		for (Tool tool : tools) {
			if (found.putIfAbsent(tool.name(), tool) != null) {
				throw new IllegalArgumentException("two tools have the name " + tool.name());
			}
		}
		return found;
	}

	@Override
	public String toString() {
		return "tool " + name();
	}
}
