import type { ClientHttp2Session, ClientHttp2Stream } from "node:http2";
import { Http2SessionManager } from "@connectrpc/connect-node";

/**
 * The HTTP/2 connections of a client, with a permanent listener for errors. The base class removes its listener when
 * it abandons a connection. If Node.js is about to report an error of that connection, the error would have no
 * listener and would end the program. The calls on the connection report the error, so this listener does nothing.
 */
export class SessionManager extends Http2SessionManager {
  readonly #known = new WeakSet<ClientHttp2Session>();

  override async request(...call: Parameters<Http2SessionManager["request"]>): Promise<ClientHttp2Stream> {
    const stream = await super.request(...call);
    const session = stream.session as ClientHttp2Session | undefined;
    if (session && !this.#known.has(session)) {
      this.#known.add(session);
      session.on("error", () => {});
    }
    return stream;
  }
}
