/**
 * The library for Node.js: everything of `@copilot-grpc/client`, and what only Node.js has.
 *
 * @packageDocumentation
 */
export * from "../index.js";
export { connect } from "./connect.js";
export type { ConnectOptions, TlsOptions } from "./connect.js";
export { attachFile, DirectoryFileSystem, tokenFromFile } from "./files.js";
export { PrivateServer, startServer } from "./server.js";
export type { StartOptions } from "./server.js";
export { defaultSocket } from "./target.js";
