package io.github.copilotgrpc;

import io.grpc.Metadata;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;

/** The latest position of a session that this program has seen. Safe for concurrent use. */
final class Progress {
	private static final Metadata.Key<String> TRAILER =
			Metadata.Key.of("copilot-position", Metadata.ASCII_STRING_MARSHALLER);
	private static final Position NONE = new Position(0, 0);

	private final AtomicReference<Position> last = new AtomicReference<>(NONE);

	Optional<Position> last() {
		Position position = last.get();
		return position.equals(NONE) ? Optional.empty() : Optional.of(position);
	}

	/** Takes a position, unless a later one is known. An unset message changes nothing. */
	void note(io.github.copilotgrpc.bridge.v1.Position message) {
		note(Position.of(message));
	}

	void note(Position position) {
		last.accumulateAndGet(position, (known, seen) -> seen.compareTo(known) > 0 ? seen : known);
	}

	/** Takes the position in the trailers of a reply. */
	void note(Metadata trailers) {
		String text = trailers.get(TRAILER);
		if (text != null) {
			note(Position.parse(text));
		}
	}
}
