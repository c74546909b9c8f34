import io.github.copilotgrpc.CopilotClient;
import io.github.copilotgrpc.Event;
import io.github.copilotgrpc.EventQuery;
import io.github.copilotgrpc.Gap;
import io.github.copilotgrpc.Position;
import io.github.copilotgrpc.StreamItem;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Prints a session's events, one a line, and stores its position in a file: java Watcher SESSION_ID POSITION_FILE
 *
 * <p>Broken connections and restarts of the server leave no trace in the output. After a restart of this program, the output
 * continues where it ended.
 */
public final class Watcher {
	public static void main(String[] arguments) throws IOException {
		Path file = Path.of(arguments[1]);
		EventQuery query = EventQuery.all().exclude("model.*");
		if (Files.exists(file)) {
			query = query.after(Position.parse(Files.readString(file)));
		}
		try (CopilotClient client = CopilotClient.connect();
				var events = client.session(arguments[0]).events(query)) {
			for (StreamItem item : events) {
				if (item instanceof Event event) {
					System.out.println(event.position() + " " + event.type());
				} else if (item instanceof Gap gap) {
					System.out.println("missing: " + gap.after() + " to " + gap.position() + ", " + gap.reason());
				}
				Files.writeString(file, item.position().toString());
			}
		}
	}
}
