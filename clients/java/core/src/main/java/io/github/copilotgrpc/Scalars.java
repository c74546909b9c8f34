package io.github.copilotgrpc;

import com.google.gson.JsonElement;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;

/** Shapes of strings, numbers and booleans. */
final class Scalars {
	private interface Narrow {
		Object of(BigDecimal value);
	}

	private static final Map<Class<?>, Shape> SHAPES = Map.ofEntries(
			Map.entry(String.class, new Shape(Schema.typed("string"), Scalars::string)),
			Map.entry(boolean.class, new Shape(Schema.typed("boolean"), Scalars::bool)),
			Map.entry(Boolean.class, new Shape(Schema.typed("boolean"), Scalars::bool)),
			Map.entry(int.class, integer(BigDecimal::intValueExact)),
			Map.entry(Integer.class, integer(BigDecimal::intValueExact)),
			Map.entry(long.class, integer(BigDecimal::longValueExact)),
			Map.entry(Long.class, integer(BigDecimal::longValueExact)),
			Map.entry(short.class, integer(BigDecimal::shortValueExact)),
			Map.entry(Short.class, integer(BigDecimal::shortValueExact)),
			Map.entry(byte.class, integer(BigDecimal::byteValueExact)),
			Map.entry(Byte.class, integer(BigDecimal::byteValueExact)),
			Map.entry(BigInteger.class, integer(BigDecimal::toBigIntegerExact)),
			Map.entry(double.class, number(BigDecimal::doubleValue)),
			Map.entry(Double.class, number(BigDecimal::doubleValue)),
			Map.entry(float.class, number(BigDecimal::floatValue)),
			Map.entry(Float.class, number(BigDecimal::floatValue)),
			Map.entry(BigDecimal.class, number(value -> value)),
			Map.entry(OptionalInt.class, optional(
					integer(value -> OptionalInt.of(value.intValueExact())), OptionalInt.empty())),
			Map.entry(OptionalLong.class, optional(
					integer(value -> OptionalLong.of(value.longValueExact())), OptionalLong.empty())),
			Map.entry(OptionalDouble.class, optional(
					number(value -> OptionalDouble.of(value.doubleValue())), OptionalDouble.empty())));

	private Scalars() {}

	/** The shape of a class; null if it is none of these. The schema is a copy. */
	static Shape of(Class<?> type) {
		Shape shape = SHAPES.get(type);
		return shape == null ? null : new Shape(shape.schema().deepCopy(), shape.decoder(), shape.optional());
	}

	static boolean isString(JsonElement value) {
		return value.isJsonPrimitive() && value.getAsJsonPrimitive().isString();
	}

	private static Object string(JsonElement value, String path) throws Mismatch {
		if (!isString(value)) {
			throw Mismatch.of(path, "a string", value);
		}
		return value.getAsString();
	}

	private static Object bool(JsonElement value, String path) throws Mismatch {
		if (!value.isJsonPrimitive() || !value.getAsJsonPrimitive().isBoolean()) {
			throw Mismatch.of(path, "a boolean", value);
		}
		return value.getAsBoolean();
	}

	private static Shape integer(Narrow narrow) {
		return new Shape(Schema.typed("integer"), (value, path) -> {
			BigDecimal number = decimal(value, path, "an integer");
			if (number.stripTrailingZeros().scale() > 0) {
				throw new Mismatch(Mismatch.place(path) + ": expected an integer, got " + value);
			}
			try {
				return narrow.of(number);
			} catch (ArithmeticException e) {
				throw new Mismatch(Mismatch.place(path) + ": is out of range: " + value);
			}
		});
	}

	private static Shape number(Narrow narrow) {
		return new Shape(Schema.typed("number"), (value, path) -> narrow.of(decimal(value, path, "a number")));
	}

	private static BigDecimal decimal(JsonElement value, String path, String want) throws Mismatch {
		if (!value.isJsonPrimitive() || !value.getAsJsonPrimitive().isNumber()) {
			throw Mismatch.of(path, want, value);
		}
		BigDecimal number;
		try {
			number = value.getAsBigDecimal();
		} catch (NumberFormatException e) {
			throw new Mismatch(Mismatch.place(path) + ": is out of range: " + value); // Gson bounds the exponent
		}
		return number;
	}

	private static Shape optional(Shape content, Object absent) {
		return new Shape(content.schema(),
				(value, path) -> value.isJsonNull() ? absent : content.decoder().decode(value, path), true);
	}
}
