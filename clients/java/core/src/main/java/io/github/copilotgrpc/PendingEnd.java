package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.Callback;
import io.github.copilotgrpc.bridge.v1.CallbackResolved;
import java.util.Optional;

/**
 * A callback that was reported no longer waits, or this program may no longer see it.
 *
 * @param callback the callback
 * @param resolved how it ended, and who answered it; empty if the server did not say
 */
public record PendingEnd(Callback callback, Optional<CallbackResolved> resolved) implements PendingChange {
}
