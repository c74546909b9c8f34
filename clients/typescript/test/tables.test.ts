// Pure functions, as tables.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { Code, ConnectError } from "@connectrpc/connect";
import {
  abstain,
  answerTool,
  binary,
  comparePositions,
  CopilotError,
  defineTool,
  firstOf,
  formatPosition,
  parsePosition,
  permissionRules,
  type PermissionDecision,
  type PermissionRequest,
  reject,
  toCopilotError,
} from "@copilot-grpc/client";
import { AnswerSchema, CallbackKind, CallbackSchema } from "@copilot-grpc/client/gen/copilot/bridge/v1/callback_pb";
import { z } from "zod";

describe("positions", () => {
  for (const [a, b, want] of [
    ["1/1", "1/1", 0],
    ["1/2", "1/10", -1],
    ["2/1", "1/9", 1],
    ["18446744073709551615/1", "1/1", 1],
  ] as const) {
    test(`${a} and ${b}`, () => {
      assert.equal(comparePositions(parsePosition(a), parsePosition(b)), want);
      assert.equal(formatPosition(parsePosition(a)), a);
    });
  }
  test("other texts are refused", () => assert.throws(() => parsePosition("1-2"), RangeError));
});

describe("permission rules", () => {
  const handler = permissionRules({
    read: "approve",
    shell: ({ action }) => (action.value.fullCommandText === "ls" ? "approve-for-session" : reject("only ls")),
    otherwise: abstain,
  });
  const request = (name: string | undefined, value: object = {}) =>
    ({ action: { case: name, value } }) as unknown as PermissionRequest;
  for (const [name, value, want] of [
    ["read", {}, "approve"],
    ["shell", { fullCommandText: "ls" }, "approve-for-session"],
    ["shell", { fullCommandText: "rm" }, reject("only ls")],
    ["write", {}, abstain],
    ["otherwise", {}, abstain],
    [undefined, {}, abstain],
  ] as [string | undefined, object, PermissionDecision][]) {
    test(`${name} ${JSON.stringify(value)}`, async () => assert.deepEqual(await handler(request(name, value)), want));
  }
  test("rules abstain by default", async () => assert.equal(await permissionRules({})(request("read")), abstain));
  test("firstOf asks in order", async () => {
    assert.equal(await firstOf(handler, () => "reject")(request("write")), "reject");
    assert.equal(await firstOf(handler)(request("write")), abstain);
  });
});

describe("tool arguments", () => {
  const schemas = {
    zod: defineTool({
      name: "t",
      description: "",
      parameters: z.object({ n: z.number().int() }),
      handler: ({ n }) => n + 1,
    }),
    json: defineTool({
      name: "t",
      description: "",
      parameters: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] },
      handler: ({ n }) => Number(n) + 1,
    }),
  };
  for (const [name, tool] of Object.entries(schemas)) {
    for (const [args, want] of [
      ['{"n":1}', 2],
      ['{"n":"1"}', /n: /],
      ["{}", /n/],
      ["", /n/],
      ["[]", /object/i],
      ["{", /not valid JSON/],
    ] as [string, number | RegExp][]) {
      test(`${name} ${args}`, async () => {
        const result = await tool.execute?.(args, {} as never);
        if (typeof want === "number") return assert.equal(result, want);
        const { answer } = answerTool(result);
        assert.ok(answer.case === "tool" && answer.value.outcome.case === "result");
        assert.equal(answer.value.outcome.value.resultType, "failure");
        assert.match(answer.value.outcome.value.textResultForLlm, /^The arguments do not fit: /);
        assert.match(answer.value.outcome.value.textResultForLlm, want);
      });
    }
  }

  test("the JSON Schema is the library's", () => {
    const { parametersJson = "" } = schemas.zod.definition;
    const { type, properties, required } = JSON.parse(parametersJson) as Record<string, unknown>;
    assert.deepEqual([type, Object.keys(properties as object), required], ["object", ["n"], ["n"]]);
  });

  test("schemas without a JSON Schema of an object are refused", () => {
    assert.throws(
      () => defineTool({ name: "t", description: "", parameters: z.string(), handler: () => "" }),
      /type "object"/,
    );
    const parameters = {
      "~standard": { version: 1, vendor: "other", validate: (value: unknown) => ({ value }) },
    } as const;
    assert.throws(() => defineTool({ name: "t", description: "", parameters }), /of other provides no JSON Schema/);
    assert.throws(() => defineTool({ name: "not a name", description: "" }), /must consist of letters/);
  });
});

describe("tool results", () => {
  for (const [name, result, want] of [
    ["text", "ok", { case: "text", value: "ok" }],
    ["JSON", { a: 1n, b: [true] }, { case: "text", value: '{"a":"1","b":[true]}' }],
    ["number", 0, { case: "text", value: "0" }],
  ] as const) {
    test(name, () => {
      const { answer } = answerTool(result);
      assert.ok(answer.case === "tool");
      assert.deepEqual(answer.value.outcome, want);
    });
  }
  test("nothing", () => {
    for (const result of [undefined, null]) {
      const { answer } = answerTool(result);
      assert.ok(answer.case === "tool");
      assert.deepEqual(answer.value.outcome, { case: "text", value: "Done." });
    }
  });
  test("binary", () => {
    const { answer } = answerTool(binary(new Uint8Array([1]), "application/pdf", "a file"));
    assert.ok(answer.case === "tool" && answer.value.outcome.case === "result");
    const [file] = answer.value.outcome.value.binaryResultsForLlm;
    assert.deepEqual([file?.binaryType, file?.mimeType, file?.data.length], [2, "application/pdf", 1]);
  });
  test("abstain", () => assert.equal(answerTool(abstain).answer.case, "abstain"));
});

test("every kind of callback has a name, and an answer of the same name", () => {
  const answers = new Set(AnswerSchema.oneofs[0]?.fields.map((field) => field.localName));
  const requests = CallbackSchema.oneofs[0]?.fields ?? [];
  assert.equal(requests.length, Object.values(CallbackKind).filter((kind) => typeof kind === "number").length - 1);
  for (const { name, localName } of requests) {
    assert.equal(typeof CallbackKind[name.toUpperCase() as keyof typeof CallbackKind], "number", name);
    if (localName !== "toolCall") assert.ok(answers.has(localName), localName);
  }
});

describe("errors", () => {
  /** Field `no` of a message, with a message, a text or a number inside. */
  function field(no: number, value: string | number | Uint8Array): Uint8Array {
    const writer = new BinaryWriter();
    if (typeof value === "number") return writer.tag(no, WireType.Varint).int64(value).finish();
    const tagged = writer.tag(no, WireType.LengthDelimited);
    return (typeof value === "string" ? tagged.string(value) : tagged.bytes(value)).finish();
  }
  const join = (...parts: Uint8Array[]) => Uint8Array.from(parts.flatMap((part) => [...part]));
  const details = {
    info: {
      type: "google.rpc.ErrorInfo",
      value: join(
        field(1, "SESSION_BUSY"),
        field(2, "copilot-grpc"),
        field(3, join(field(1, "session_id"), field(2, "s1"))),
        field(9, "a field of a later version"),
      ),
    },
    foreign: { type: "google.rpc.ErrorInfo", value: join(field(1, "OTHER"), field(2, "example.com")) },
    request: { type: "google.rpc.BadRequest", value: field(1, join(field(1, "prompt.text"), field(2, "empty"))) },
    retry: { type: "google.rpc.RetryInfo", value: field(1, join(field(1, 2), field(2, 500_000_000))) },
  };

  test("details of the server are read", () => {
    const thrown = new ConnectError("busy", Code.FailedPrecondition);
    thrown.details.push(details.info, details.request, details.retry);
    const error = toCopilotError(thrown);
    assert.ok(error instanceof CopilotError);
    assert.equal(error.message, 'SESSION_BUSY (field "prompt.text"): busy');
    assert.deepEqual([error.metadata["session_id"], error.field, error.retryAfterMs], ["s1", "prompt.text", 2500]);
  });

  test("reasons of other domains, and connections that break, have no reason", () => {
    const thrown = new ConnectError("reset", Code.Unavailable);
    thrown.details.push(details.foreign);
    const error = toCopilotError(thrown);
    assert.ok(error instanceof CopilotError);
    assert.deepEqual([error.reason, error.message], [undefined, "UNAVAILABLE: reset"]);
  });
});
