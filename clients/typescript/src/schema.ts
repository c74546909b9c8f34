import { type Schema as ValidatorSchema, Validator } from "@cfworker/json-schema";

/** The interface of https://standardschema.dev, as far as this library uses it. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    /** Returns the value in its final form, or what is wrong with it. */
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** What the validation of a {@link StandardSchema} returns. */
export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[] };

/** The type of the values that a schema accepts and returns. */
export type SchemaOutput<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["output"];

/** A JSON Schema as an object. */
export type JsonSchema = { readonly [key: string]: unknown };

/** The checked arguments, or the violations in words for the model. */
export type Checked<T> = { ok: true; value: T } | { ok: false; violations: string };

/** A schema of arguments: its text for the model, and the check of the arguments that the model gives. */
export interface ArgumentSchema<T> {
  readonly json: string;
  check(argumentsJson: string): Checked<T> | Promise<Checked<T>>;
}

/** The schema of a tool's arguments. Throws a TypeError if `parameters` provides no JSON Schema of an object. */
export function argumentSchema<T>(
  parameters: StandardSchema | JsonSchema | undefined,
  given: JsonSchema | undefined,
): ArgumentSchema<T> {
  if (isStandardSchema(parameters)) {
    const json = given ?? deriveJsonSchema(parameters);
    return {
      json: objectSchema(json),
      check: (text) => checkWith(text, (value) => validateStandard<T>(parameters, value)),
    };
  }
  const schema = given ?? parameters ?? { type: "object", properties: {} };
  const json = objectSchema(schema);
  const validator = new Validator(schema as ValidatorSchema, "2020-12", false);
  return { json, check: (text) => checkWith(text, (value) => validateJson<T>(validator, value)) };
}

function checkWith<T>(
  text: string,
  validate: (value: unknown) => Checked<T> | Promise<Checked<T>>,
): Checked<T> | Promise<Checked<T>> {
  let value: unknown;
  try {
    value = JSON.parse(text || "{}"); // a model omits the arguments if there are none
  } catch (error) {
    return { ok: false, violations: `the arguments are not valid JSON: ${(error as Error).message}` };
  }
  return validate(value);
}

async function validateStandard<T>(schema: StandardSchema, value: unknown): Promise<Checked<T>> {
  const result = await schema["~standard"].validate(value);
  if (result.issues === undefined) return { ok: true, value: result.value as T };
  const lines = result.issues.map((issue) => {
    const path = (issue.path ?? []).map((part) => String(isSegment(part) ? part.key : part)).join(".");
    return path ? `${path}: ${issue.message}` : issue.message;
  });
  return { ok: false, violations: lines.join("; ") };
}

function isSegment(part: unknown): part is { key: PropertyKey } {
  return typeof part === "object" && part !== null && "key" in part;
}

function validateJson<T>(validator: Validator, value: unknown): Checked<T> {
  const { valid, errors } = validator.validate(value);
  if (valid) return { ok: true, value: value as T };
  const lines = errors.map((unit) => `${unit.instanceLocation.replace(/^#\/?/, "") || "the arguments"}: ${unit.error}`);
  return { ok: false, violations: [...new Set(lines)].join("; ") };
}

function isStandardSchema(value: unknown): value is StandardSchema {
  return (typeof value === "object" || typeof value === "function") && value !== null && "~standard" in value;
}

/** Derives the JSON Schema by the means of the schema's library. */
function deriveJsonSchema(schema: StandardSchema): JsonSchema {
  const standard = schema["~standard"] as StandardSchema["~standard"] & {
    jsonSchema?: { input(options: { target: string }): JsonSchema };
  };
  const methods = schema as { toJSONSchema?: () => JsonSchema; toJsonSchema?: () => JsonSchema };
  if (standard.jsonSchema) return standard.jsonSchema.input({ target: "draft-2020-12" });
  if (typeof methods.toJSONSchema === "function") return methods.toJSONSchema(); // Zod 4
  if (typeof methods.toJsonSchema === "function") return methods.toJsonSchema(); // ArkType
  throw new TypeError(`a schema of ${standard.vendor} provides no JSON Schema: set jsonSchema as well`);
}

function objectSchema(schema: JsonSchema): string {
  if (schema["type"] !== "object") {
    throw new TypeError(
      `the schema of a tool's arguments must have the type "object", not ${JSON.stringify(schema["type"])}`,
    );
  }
  return JSON.stringify(schema);
}
