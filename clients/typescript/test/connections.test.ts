// Real connections: TLS, client certificates, rotated tokens, and a server that is restarted.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer as createHttp1Server } from "node:http";
import { createServer } from "node:http2";
import { type AddressInfo, createServer as createTcpServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { inspect, promisify } from "node:util";
import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, createRouterTransport } from "@connectrpc/connect";
import {
  bearer,
  Client,
  connect,
  type ConnectionChange,
  type ConnectOptions,
  CopilotError,
  defineTool,
  isReason,
  type Outcome,
  OutcomeError,
  RuntimeService,
  SessionClosedError,
  startServer as startPrivate,
  toCopilotError,
  WithdrawnError,
} from "@copilot-grpc/client/node";
import { SubscriptionClosedSchema } from "@copilot-grpc/client/gen/copilot/bridge/v1/event_service_pb";
import type { TestServer } from "@copilot-grpc/client/testing";
import { binary, exampleModel, packageRoot, startServer } from "./fixture.js";
import { Queue } from "./scripted.js";

const run = promisify(execFile);
const token = "a-token-for-these-tests";
let folder: string;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "connections-"));
});
after(() => rm(folder, { recursive: true }));

const file = (name: string) => join(folder, name);
const openssl = (...args: string[]) => run("openssl", args, { cwd: folder });
const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];

describe("TLS", () => {
  let server: TestServer;

  before(async () => {
    await openssl("req", "-x509", ...key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority");
    await openssl("req", "-x509", ...key, "-keyout", "other.key", "-out", "other.pem", "-subj", "/CN=stranger");
    for (const name of ["server", "client"]) {
      await openssl("req", ...key, "-keyout", `${name}.key`, "-out", `${name}.csr`, "-subj", `/CN=${name}`);
      await writeFile(file("ext"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
      const sign = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "ext"];
      await openssl("x509", "-req", "-in", `${name}.csr`, "-out", `${name}.pem`, ...sign);
    }
    const tls = ["--tls-cert", file("server.pem"), "--tls-key", file("server.key"), "--tls-client-ca", file("ca.pem")];
    server = await startServer({ args: ["--listen", "127.0.0.1:0", "--token", token, ...tls] });
  });
  after(() => server.close());

  test("a client certificate of the authority is accepted, and other certificates are not", async () => {
    const [, target = ""] = server.addresses;
    const ca = await readFile(file("ca.pem"));
    const mutual = { ca, cert: await readFile(file("client.pem")), key: await readFile(file("client.key")) };
    await using client = await connect({ target, token, tls: mutual });
    assert.ok((await client.serverInfo()).version);
    const stranger = { ca, cert: await readFile(file("other.pem")), key: await readFile(file("other.key")) };
    const remedy = "see the option tls of connect for certificates, and set it to false for a server without TLS$";
    const refused = (why: string) => new RegExp(`cannot connect to ${target} \\(.*${why}.*${remedy}`);
    await assert.rejects(connect({ target, token, tls: stranger }), refused(""));
    await assert.rejects(connect({ target, token, tls: true }), refused("certificate"));
    await assert.rejects(connect({ target, token, tls: false }), /cannot connect to .*: set the option tls of connect/);
  });
});

describe("servers", () => {
  test("a server of HTTP/1.1 is refused, and its protocol error does not end the program", async () => {
    const foreign = createHttp1Server((_, response) => response.writeHead(404).end());
    foreign.listen(file("http1"));
    await once(foreign, "listening");
    const attempt = () =>
      assert.rejects(connect({ target: `unix:${file("http1")}` }), /cannot connect|not a copilot-grpc server/);
    await Promise.all([attempt(), attempt(), attempt(), attempt()]);
    await nextTurn(); // in which Node.js emits the errors of the destroyed connections
    foreign.close();
  });

  test("a participant and its tool survive a restart of the server", async () => {
    const home = ["--home", file("home"), "--user-home", folder, "--no-login", "--offline-model", exampleModel];
    const options = (listen: string) => ({
      binary,
      cli: process.env["COPILOT_CLI_PATH"],
      dataDirectory: file("data"),
      timeoutMs: 90_000,
      args: ["--listen", listen, "--token", token, "--drain-grace", "100ms", ...home],
    });
    const first = await startPrivate(options("127.0.0.1:0"));
    const target = first.output.flatMap((line) => /listening address=(127\S+)/.exec(line)?.[1] ?? [])[0] ?? "";
    await using client = await connect({ target, token });
    const changes = new Queue<ConnectionChange>();
    const tool = defineTool({ name: "get_weather", description: "", handler: () => "sun" });
    await using session = await client.createSession({
      tools: [tool],
      onPermission: () => "approve",
      onConnection: (change) => changes.put(change),
      graceMs: 60_000,
    });
    assert.equal((await session.sendAndWait("hello")).text, "You said: hello");
    await first.close();
    assert.equal((await changes.take()).type, "broken");
    await using second = await startPrivate(options(target));
    assert.ok(second.target);
    let change = await changes.take();
    while (change.type === "broken") change = await changes.take();
    assert.match(change.type, /^(restored|participant_expired)$/);
    assert.match((await session.sendAndWait("weather")).text, /^The tool says: sun/);
  });

  test("connect starts a private server, and stops it with the client", async () => {
    const cli = process.env["COPILOT_CLI_PATH"];
    const args = ["--offline-model", "default", "--no-login", "--home", file("private")];
    const client = await connect({ start: { binary, cli, args, timeoutMs: 90_000 } });
    assert.equal((await client.serverInfo()).capabilities?.offlineModel, true);
    await client.close();
    await assert.rejects(client.serverInfo(), Error);
  });

  test("a binary that does not start is an error with its output", async () => {
    await assert.rejects(startPrivate({ binary: file("nothing") }), /nothing did not start: .*ENOENT.*PATH/);
    await assert.rejects(
      startPrivate({ binary, args: ["--no-such-flag"] }),
      /did not start: it exited with 2[^]*no-such-flag/,
    );
  });

  const refused: [name: string, options: ConnectOptions, expected: RegExp][] = [
    ["no socket", { target: "unix:/no.sock" }, /^UNAVAILABLE: no server at unix:\/no.sock \(ENOENT.*\): start it/],
    ["a closed port", { target: "127.0.0.1:1" }, /^UNAVAILABLE: no server at 127.0.0.1:1 \(.*ECONNREFUSED.*start it/],
    ["a URL", { target: "http://127.0.0.1:1" }, /^UNAVAILABLE: no server at http:\/\/127.0.0.1:1 \(.*ECONNREFUSED/],
    ["capitals", { target: "HTTPS://127.0.0.1:1" }, /^UNAVAILABLE: no server at HTTPS:.*ECONNREFUSED/],
    ["dns", { target: "dns:///127.0.0.1:1" }, /^UNAVAILABLE: no server at dns:.*ECONNREFUSED 127.0.0.1:1/],
    ["the variable", {}, /^UNAVAILABLE: no server at 127.0.0.1:2 .*option target of connect or COPILOT_GRPC_TARGET$/],
    ...["nonsense", "", "grpc://a:1", "https://a/path", "https://user@a", "a:1?b", "http://", "unix:"].map(
      (target): [string, ConnectOptions, RegExp] => [
        `the text ${JSON.stringify(target)}`,
        { target },
        /^".*" is no target: set the option target of connect or COPILOT_GRPC_TARGET to .*https:\/\/host:port$/,
      ],
    ),
  ];
  for (const [name, options, expected] of refused) {
    test(`${name} without a server is refused with a remedy`, async () => {
      process.env["COPILOT_GRPC_TARGET"] = "127.0.0.1:2";
      try {
        await assert.rejects(connect(options), ({ message }: Error) => {
          assert.match(message, expected);
          return !message.includes("\n");
        });
      } finally {
        delete process.env["COPILOT_GRPC_TARGET"];
      }
    });
  }

  test("a server that does not answer is unavailable after the time limit", async () => {
    const accept = (socket: Socket) => socket.resume().on("error", () => undefined);
    await using silent = createTcpServer(accept).listen(0, "127.0.0.1");
    await once(silent, "listening");
    const target = `127.0.0.1:${(silent.address() as AddressInfo).port}`;
    const message = /no server at .*\(no answer within 100 ms\): start it with/;
    await assert.rejects(connect({ target, timeoutMs: 100 }), { code: Code.Unavailable, message });
    await assert.rejects(connect({ target, signal: AbortSignal.timeout(100) }), { name: "TimeoutError" });
  });

  test("another server is incompatible", async () => {
    const server = createServer((_request, response) => response.writeHead(404).end("not found"));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    await assert.rejects(connect({ target: `127.0.0.1:${port}` }), {
      name: "IncompatibleServerError",
      message: /^the target is not a copilot-grpc server, .*option target of connect or COPILOT_GRPC_TARGET/,
    });
    server.close();
  });
});

describe("uncaught errors", () => {
  /** What Node.js prints of an error, without its stack. */
  const printed = (error: Error) =>
    inspect(error, { customInspect: false, depth: 5 })
      .split("\n")
      .filter((line) => !line.startsWith("    at "));

  const notFound = { code: Code.NotFound, reason: "SESSION_NOT_FOUND", field: "session_id", message: "none" };
  const outcome = { messageId: "m1", status: "failed" } as Outcome;
  const unauthenticated = toCopilotError(new ConnectError("wrong token", Code.Unauthenticated));
  for (const [error, line] of [
    [new CopilotError(notFound), 'CopilotError: SESSION_NOT_FOUND (field "session_id"): none'],
    [toCopilotError(new ConnectError("cut", Code.Unavailable)), "CopilotError: UNAVAILABLE: cut"],
    [
      unauthenticated,
      "CopilotError: UNAUTHENTICATED: wrong token: give a token with the option token of connect, or in Node.js set " +
        "COPILOT_GRPC_TOKEN",
    ],
    [new OutcomeError(outcome), "OutcomeError: the turn ended as failed"],
    [
      new SessionClosedError("s1", create(SubscriptionClosedSchema)),
      'SessionClosedError: session "s1" is closed: unspecified',
    ],
    [new WithdrawnError(1, "p1"), "WithdrawnError: the callback has ended"],
  ] as [Error, string][]) {
    test(`${error.name} is one line: ${error.message}`, () => {
      assert.deepEqual(printed(error), [line]);
    });
  }

  test("an error of connecting is one line of the output of a program", async () => {
    const program = `import { connect } from "@copilot-grpc/client/node"; await connect({ target: "127.0.0.1:1" });`;
    const args = ["--input-type=module", "--eval", program];
    const failed = run(process.execPath, args, { cwd: packageRoot }).catch((error: { stderr: string }) => error);
    const { stderr } = await failed;
    const [, after = ""] = stderr.split("CopilotError: UNAVAILABLE: no server at 127.0.0.1:1");
    const lines = after.split("\n").slice(1);
    const others = lines.filter((line) => line && !/^ {4}at |^Node\.js v/.test(line));
    assert.ok(after && others.length === 0, stderr);
  });
});

describe("tokens", () => {
  /** A server that accepts one token, and a client whose token function returns `tokens` in order. */
  function rotating(accepted: string, tokens: string[]) {
    const seen: (string | null)[] = [];
    let at = 0;
    const token = () => tokens[Math.min(at++, tokens.length - 1)] ?? "";
    const transport = createRouterTransport(
      ({ service }) =>
        service(RuntimeService, {
          getServerInfo: (_request, { requestHeader }) => {
            seen.push(requestHeader.get("authorization"));
            if (requestHeader.get("authorization") === `Bearer ${accepted}`) return {};
            throw new ConnectError("expired", Code.Unauthenticated, { "copilot-reason": "UNAUTHENTICATED" });
          },
        }),
      { transport: { interceptors: [bearer(token)] } },
    );
    return { client: new Client(transport, { reconnect: { minBackoffMs: 1 } }), seen };
  }

  test("a call with an expired token is repeated with its successor", async () => {
    const { client, seen } = rotating("new", ["old", "new"]);
    await client.serverInfo();
    assert.deepEqual(seen, ["Bearer old", "Bearer new"]);
  });

  test("a function with another token for each call is a reason for one attempt", async () => {
    const { client, seen } = rotating("never", ["1", "2", "3", "4", "5", "6"]);
    await assert.rejects(client.serverInfo(), (error) => isReason(error, "UNAUTHENTICATED"));
    assert.deepEqual(seen, ["Bearer 1", "Bearer 3"]); // the library compares with the second
  });

  test("a wrong token is final", async () => {
    const { client, seen } = rotating("new", ["old"]);
    await assert.rejects(
      client.serverInfo(),
      (error) =>
        isReason(error, "UNAUTHENTICATED") &&
        error.rawMessage === "expired" &&
        /expired: give a token with the option token of connect, .*COPILOT_GRPC_TOKEN$/.test(error.message),
    );
    assert.equal(seen.length, 1);
  });
});
