// MCP servers of a session: over stdio and HTTP, with hooks, failures and OAuth.
import { eventually, failure, persisted, Recorder, turn } from "../stage.mjs";

// The driver plays the servers: SDK_MCP_COMMAND over stdio, SDK_MCP_URL over HTTP, and
// SDK_MCP_OAUTH_URL for those who have the token.
const stdio = () => ({ type: "stdio", command: process.env.SDK_MCP_COMMAND, args: [], env: { SDK_MCP_SERVER: "1" }, tools: ["*"] });
const http = (url) => ({ type: "http", url, tools: ["*"] });

// settled waits until the server is there, or will not be.
async function settled(session, is = (status) => status && status !== "pending") {
  await eventually("the MCP server", async () => {
    const { servers } = await session.rpc.mcp.list();
    return is(servers.find((s) => s.name === "echo")?.status);
  });
}

async function withServer(stage, server, more = {}, is) {
  const session = await stage.client().createSession(stage.config({ mcpServers: { echo: server }, ...more }));
  const seen = new Recorder(session);
  await settled(session, is);
  const answer = await turn(session, 'use mcp {"text":"land ho"}');
  const { servers } = await session.rpc.mcp.list();
  const listed = await failure(() => session.rpc.mcp.listTools({ serverName: "echo" }));
  return {
    answer, servers: servers.filter((s) => s.name === "echo"), listed, running: await failure(() => session.rpc.mcp.isServerRunning({ serverName: "echo" })),
    results: seen.data("tool.execution_complete").map((d) => [d.success, d.error]), persisted: await persisted(session),
  };
}

export const mcp_stdio = (stage) => withServer(stage, stdio());
export const mcp_http = (stage) => withServer(stage, http(process.env.SDK_MCP_URL));
export const mcp_no_tools = (stage) => withServer(stage, { ...stdio(), tools: [] });
export const mcp_broken = (stage) => withServer(stage, { type: "stdio", command: "/no/such/program", args: [], tools: ["*"] });

export async function mcp_permission(stage) {
  const asked = [];
  const record = await withServer(stage, stdio(), { onPermissionRequest: (request) => { asked.push(request); return { kind: "reject" }; } });
  return { ...record, asked };
}

export async function mcp_hook(stage) {
  const called = [];
  const record = await withServer(stage, stdio(), { hooks: { onPreMcpToolCall: ({ timestamp, ...input }) => { called.push(input); return { metaToUse: { ours: "yes" } }; } } });
  return { ...record, called };
}

async function oauth(stage, answer, is) {
  const asked = [];
  const record = await withServer(stage, http(process.env.SDK_MCP_OAUTH_URL), {
    onMcpAuthRequest: (request) => {
      asked.push(request);
      return answer();
    },
  }, is);
  // How often it is asked again is the CLI's matter, and its haste.
  return { ...record, asked: asked.slice(0, 1).map(({ requestId, ...rest }) => rest) };
}

export const mcp_oauth = (stage) => oauth(stage, () => ({ kind: "token", accessToken: "good-token", tokenType: "Bearer", expiresIn: 3600 }), (status) => status === "connected");
// What becomes of a server that is refused its token, and when, depends on the CLI's haste.
export async function mcp_oauth_cancelled(stage) {
  const { asked } = await oauth(stage, () => ({ kind: "cancelled" }));
  return { asked };
}

export async function mcp_stop_and_start(stage) {
  const session = await stage.client().createSession(stage.config({ mcpServers: { echo: stdio() } }));
  await turn(session, 'use mcp {"text":"land ho"}');
  const { mcp } = session.rpc;
  const running = async () => (await mcp.isServerRunning({ serverName: "echo" })).running;
  const record = { before: await running() };
  record.stopped = await failure(() => mcp.stopServer({ serverName: "echo" }));
  record.between = await running();
  record.disabled = await failure(() => mcp.disable({ serverName: "echo" }));
  record.enabled = await failure(() => mcp.enable({ serverName: "echo" }));
  record.unknown = await failure(() => mcp.enable({ serverName: "nobody" }));
  return { ...record, answer: await turn(session, 'use mcp {"text":"ahoy"}'), persisted: await persisted(session) };
}
