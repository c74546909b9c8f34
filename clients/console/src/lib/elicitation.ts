import type { AnswerInit, Callback } from "@copilot-grpc/client";

type Request = Extract<Callback["request"], { case: "elicitation" }>["value"];

/** A field of a form. */
export interface Field {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly kind: "text" | "long" | "number" | "boolean" | "one" | "many";
  readonly inputType: "text" | "email" | "url" | "date" | "datetime-local" | "number";
  readonly required: boolean;
  /** The values to choose from, with their names. */
  readonly options: readonly (readonly [string, string])[];
  readonly initial: string | boolean | readonly string[];
  readonly integer: boolean;
  readonly min: number | undefined;
  readonly max: number | undefined;
}

export type FieldValue = string | boolean | readonly string[];

type Schema = Readonly<Record<string, unknown>>;

/** The fields of a form. A schema that is not understood becomes a text field. */
export function fieldsOf(request: Request): Field[] {
  let properties: Record<string, unknown> = {};
  try {
    properties = JSON.parse(request.requestedSchema?.propertiesJson || "{}") as Record<string, unknown>;
  } catch {
    return [];
  }
  const required = new Set(request.requestedSchema?.required);
  return Object.entries(properties).map(([name, schema]) =>
    fieldOf(name, isRecord(schema) ? schema : {}, required.has(name)),
  );
}

function fieldOf(name: string, schema: Schema, required: boolean): Field {
  const type = text(schema["type"]);
  const options = optionsOf(schema);
  const items = isRecord(schema["items"]) ? optionsOf(schema["items"]) : [];
  const number = type === "number" || type === "integer";
  const long = (numberOf(schema["maxLength"]) ?? 0) > 200;
  const kind =
    type === "array" ? "many" : type === "boolean" ? "boolean" : options.length > 0 ? "one" : number ? "number" : long ? "long" : "text";
  return {
    name,
    title: text(schema["title"]) || name,
    description: text(schema["description"]),
    kind,
    inputType: number ? "number" : (inputTypes[text(schema["format"])] ?? "text"),
    required,
    options: kind === "many" ? items : options,
    initial: initialOf(kind, schema["default"]),
    integer: type === "integer",
    min: numberOf(schema["minimum"]) ?? numberOf(schema["minLength"]),
    max: numberOf(schema["maximum"]) ?? numberOf(schema["maxLength"]),
  };
}

const inputTypes: Readonly<Record<string, Field["inputType"]>> = {
  email: "email",
  uri: "url",
  date: "date",
  "date-time": "datetime-local",
};

function initialOf(kind: Field["kind"], value: unknown): FieldValue {
  if (kind === "boolean") return value === true;
  if (kind === "many") return Array.isArray(value) ? value.map(String) : [];
  return value === undefined || value === null ? "" : String(value);
}

/** The options of `enum` with `enumNames`, or of `oneOf` and `anyOf` with `const` and `title`. */
function optionsOf(schema: Schema): (readonly [string, string])[] {
  const names = Array.isArray(schema["enumNames"]) ? schema["enumNames"] : [];
  if (Array.isArray(schema["enum"])) {
    return schema["enum"].map((value, at) => [String(value), String(names[at] ?? value)] as const);
  }
  const choices = schema["oneOf"] ?? schema["anyOf"];
  if (!Array.isArray(choices)) return [];
  return choices
    .filter(isRecord)
    .filter((choice) => choice["const"] !== undefined)
    .map((choice) => [String(choice["const"]), text(choice["title"]) || String(choice["const"])] as const);
}

/** The first problem of a form's values by field; empty if they can be sent. */
export function problemsOf(fields: readonly Field[], values: Readonly<Record<string, FieldValue>>): Record<string, string> {
  const problems: Record<string, string> = {};
  for (const field of fields) {
    const problem = problemOf(field, values[field.name] ?? field.initial);
    if (problem) problems[field.name] = problem;
  }
  return problems;
}

function problemOf({ kind, required, integer, min, max }: Field, value: FieldValue): string {
  if (typeof value === "boolean") return "";
  if (value.length === 0) return required ? "A value is required" : "";
  if (kind === "number") {
    const number = Number(value);
    if (Number.isNaN(number)) return "This is not a number";
    if (integer && !Number.isInteger(number)) return "A whole number is required";
    if (min !== undefined && number < min) return `The least value is ${min}`;
    if (max !== undefined && number > max) return `The greatest value is ${max}`;
  }
  if (kind === "text" || kind === "long") {
    if (min !== undefined && value.length < min) return `At least ${min} characters are required`;
    if (max !== undefined && value.length > max) return `At most ${max} characters are possible`;
  }
  return "";
}

/** The answer with the values of a form. Empty fields that are not required are left out. */
export function elicitationAnswer(fields: readonly Field[], values: Readonly<Record<string, FieldValue>>): AnswerInit {
  type Content = NonNullable<Extract<NonNullable<AnswerInit["answer"]>, { case: "elicitation" }>["value"]["content"]>;
  const content: Content = {};
  for (const { name, kind, initial } of fields) {
    const value = values[name] ?? initial;
    if (typeof value === "boolean") content[name] = { variant: { case: "boolValue", value } };
    else if (typeof value !== "string") content[name] = { variant: { case: "list", value: { items: [...value] } } };
    else if (value === "") continue;
    else if (kind === "number") content[name] = { variant: { case: "doubleValue", value: Number(value) } };
    else content[name] = { variant: { case: "stringValue", value } };
  }
  return { answer: { case: "elicitation", value: { action: 1, content } } };
}

/** "decline" is an answer of the user, "cancel" the absence of one. */
export function elicitationRefusal(decline: boolean): AnswerInit {
  return { answer: { case: "elicitation", value: { action: decline ? 2 : 3 } } };
}

function isRecord(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}
