#!/usr/bin/env node
// A CLI for measurements. It answers at once. The prompt "history N" gives the session N stored events, and
// "stream RATE SECONDS" sends that many deltas each second; each delta contains the time at which it was written.
import { randomUUID } from "node:crypto";
import { stdin, stdout } from "node:process";

const version = "1.0.102";

interface Call {
  readonly id?: number | string;
  readonly method?: string;
  readonly params?: { readonly sessionId?: string; readonly prompt?: string };
}

const frame = (message: object): string => {
  const body = JSON.stringify({ jsonrpc: "2.0", ...message });
  return `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
};

/** An event of a session, as a frame. */
function event(sessionId: string, type: string, data: object, ephemeral = false): string {
  const head = { id: randomUUID(), timestamp: new Date().toISOString(), parentId: null };
  const body = { type, data, ...head, ...(ephemeral ? { ephemeral } : {}) };
  return frame({ method: "session.event", params: { sessionId, event: body } });
}

/** A prompt, a call of a tool and an answer: eleven events. */
function turn(id: string, number: number): string[] {
  const [toolCallId, messageId] = [`call_${number}`, randomUUID()];
  const usage = { model: "bench", inputTokens: 1200, outputTokens: 80, cost: 1, duration: 900 };
  const output = `ok  \texample.org/part${number}\t0.012s\n`.repeat(12);
  const steps = "- it reads the header\n- then the body\n";
  const answer = `Part **${number}** passes. The function \`parse\` returns an error for an empty text:\n\n${steps}`;
  const call = { toolCallId, arguments: { command: `go test ./part${number}` } };
  return [
    event(id, "user.message", { content: `Test part ${number}`, messageId: randomUUID(), attachments: [] }),
    event(id, "assistant.turn_start", { turnId: "0" }),
    event(id, "assistant.usage", usage),
    event(id, "assistant.message", {
      messageId: randomUUID(),
      content: "",
      toolRequests: [{ ...call, name: "bash", type: "function" }],
    }),
    event(id, "tool.execution_start", { ...call, toolName: "bash" }),
    event(id, "tool.execution_complete", { toolCallId, success: true, result: { content: output } }),
    event(id, "assistant.turn_end", { turnId: "0" }),
    event(id, "assistant.turn_start", { turnId: "1" }),
    event(id, "assistant.usage", usage),
    event(id, "assistant.message", { messageId, content: answer, toolRequests: [] }),
    event(id, "assistant.turn_end", { turnId: "1" }),
  ];
}

async function write(frames: readonly string[]): Promise<void> {
  if (!stdout.write(frames.join(""))) await new Promise((resolve) => stdout.once("drain", resolve));
}

async function history(id: string, events: number): Promise<void> {
  for (let sent = 0, number = 1; sent < events; number++) {
    const frames = turn(id, number).slice(0, events - sent);
    await write(frames);
    sent += frames.length;
  }
  const last = { messageId: randomUUID(), content: "That was the history.", toolRequests: [] };
  await write([event(id, "assistant.message", last)]);
}

const perMessage = 100;

/** Sends deltas at a rate, of which each hundred are a message. */
async function stream(id: string, rate: number, seconds: number): Promise<void> {
  const total = rate * seconds;
  const begin = performance.now();
  let [messageId, content] = [randomUUID(), ""];
  for (let sent = 0; sent < total; ) {
    const next = begin + ((sent + 1) * 1000) / rate;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, next - performance.now())));
    const due = Math.min(total, Math.floor(((performance.now() - begin) * rate) / 1000));
    for (; sent < due; sent++) {
      const micros = Math.round((performance.timeOrigin + performance.now()) * 1000);
      const deltaContent = `t${micros}n${sent}e and so on `;
      content += deltaContent;
      await write([event(id, "assistant.message_delta", { messageId, deltaContent }, true)]);
      if ((sent + 1) % perMessage !== 0) continue;
      await write([event(id, "assistant.message", { messageId, content, toolRequests: [] })]);
      [messageId, content] = [randomUUID(), ""];
    }
  }
  if (content) await write([event(id, "assistant.message", { messageId, content, toolRequests: [] })]);
}

async function send(call: Call): Promise<void> {
  const id = call.params?.sessionId ?? "";
  const messageId = randomUUID();
  const prompt = call.params?.prompt ?? "";
  await write([
    frame({ id: call.id, result: { messageId } }),
    event(id, "user.message", { content: prompt, messageId, attachments: [] }),
    event(id, "assistant.turn_start", { turnId: "0" }),
  ]);
  const [name, first, second] = prompt.split(" ");
  if (name === "history") await history(id, Number(first));
  if (name === "stream") await stream(id, Number(first), Number(second));
  await write([event(id, "assistant.turn_end", { turnId: "0" }), event(id, "session.idle", {}, true)]);
}

function handle(call: Call): void {
  if (call.method === "session.send") return void send(call);
  if (call.id === undefined) return;
  const results: Record<string, object> = {
    connect: { ok: true, protocolVersion: 3, version },
    ping: { message: "", timestamp: 0, protocolVersion: 3, version },
    "session.create": { sessionId: call.params?.sessionId, workspacePath: "", capabilities: {} },
    "session.resume": { sessionId: call.params?.sessionId, workspacePath: "", capabilities: {} },
  };
  stdout.write(frame({ id: call.id, result: results[call.method ?? ""] ?? { success: true } }));
}

/** Reads messages until the input ends. */
async function serve(): Promise<void> {
  let read: Buffer = Buffer.alloc(0);
  for await (const chunk of stdin) {
    read = Buffer.concat([read, chunk as Buffer]);
    for (;;) {
      const end = read.indexOf("\r\n\r\n");
      if (end < 0) break;
      const length = Number(/Content-Length: (\d+)/i.exec(read.toString("latin1", 0, end))?.[1]);
      if (read.length < end + 4 + length) break;
      handle(JSON.parse(read.toString("utf8", end + 4, end + 4 + length)) as Call);
      read = read.subarray(end + 4 + length);
    }
  }
}

if (process.argv.includes("--version")) process.stdout.write(`GitHub Copilot CLI ${version}.\n`);
else await serve();
