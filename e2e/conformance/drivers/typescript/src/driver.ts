// The conformance suite's driver of the TypeScript library. It uses only the library's public API.
import { writeSync } from "node:fs";
import { create } from "@bufbuild/protobuf";
import { sizeDelimitedDecodeStream, sizeDelimitedEncode } from "@bufbuild/protobuf/wire";
import { RequestSchema, type Response, ResponseSchema } from "./gen/copilot/conformance/v1/conformance_pb.js";
import { CaseRunner } from "./runner.js";

function write(message: Response["message"]): void {
  const bytes = sizeDelimitedEncode(ResponseSchema, create(ResponseSchema, { message }));
  for (let at = 0; at < bytes.length; ) at += writeSync(1, bytes, at);
}

const requests = sizeDelimitedDecodeStream(RequestSchema, process.stdin)[Symbol.asyncIterator]();
for (let next = await requests.next(); !next.done; next = await requests.next()) {
  const { message } = next.value;
  if (message.case !== "case") throw new Error(`a request of the kind ${message.case}`);
  const runner = new CaseRunner(async (name) => {
    write({ case: "control", value: { $typeName: "copilot.conformance.v1.Control", name } });
    await requests.next(); // Proceed
  });
  write({ case: "result", value: await runner.run(message.value) });
}
