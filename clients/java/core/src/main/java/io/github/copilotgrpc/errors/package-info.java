/** Exceptions of the library. Errors of the server and of the connection are a {@code CopilotException}. */
package io.github.copilotgrpc.errors;
