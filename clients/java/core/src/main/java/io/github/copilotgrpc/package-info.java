/**
 * A client of copilot-grpc: sessions of the GitHub Copilot CLI with their events, your tools and your answers to
 * permission requests. Start with {@link io.github.copilotgrpc.CopilotClient#connect()}.
 *
 * <p>Messages are in {@code io.github.copilotgrpc.bridge.v1} and {@code io.github.copilotgrpc.cli.v1}. The library
 * logs to the {@link java.lang.System.Logger} {@code io.github.copilotgrpc}. With OpenTelemetry's API on the class
 * path, handlers run in the trace of their callback, and prompts carry the current span.
 */
package io.github.copilotgrpc;
