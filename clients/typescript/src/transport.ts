import * as net from "node:net";
import type { Interceptor, Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

/**
 * Connects to a server by its address as `copilot-grpc serve` prints it: `unix:PATH`, or
 * `HOST:PORT`, which asks for the server's token. Connecting happens at the first call,
 * and again by itself at the first call after the connection broke.
 */
export function connectTo(address: string, token?: string): Transport {
  const interceptors = token ? [bearer(token)] : [];
  if (!address.startsWith("unix:")) {
    return createGrpcTransport({ baseUrl: `http://${address}`, interceptors });
  }
  const path = address.slice("unix:".length);
  return createGrpcTransport({
    // The host is what the server reads in :authority; nothing is looked up.
    baseUrl: "http://localhost",
    nodeOptions: { createConnection: () => net.connect(path) },
    interceptors,
  });
}

function bearer(token: string): Interceptor {
  return (next) => (request) => {
    request.header.set("authorization", `Bearer ${token}`);
    return next(request);
  };
}
