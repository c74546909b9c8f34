package io.github.copilotgrpc;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/** Describes a component of a tool's arguments, or a record or enum in them, to the model. */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.RECORD_COMPONENT, ElementType.TYPE})
public @interface Description {
	/**
	 * The text for the model.
	 *
	 * @return the text
	 */
	String value();
}
