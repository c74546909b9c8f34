/** A server with a scripted model, for tests of agents. */
package io.github.copilotgrpc.testing;
