/** Not part of the interface. */
package io.github.copilotgrpc.internal;
