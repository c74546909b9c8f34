import io.github.copilotgrpc.CopilotClient;
import io.github.copilotgrpc.CopilotSession;
import io.github.copilotgrpc.Decision;
import io.github.copilotgrpc.SessionInfo;
import io.github.copilotgrpc.SessionOptions;
import io.github.copilotgrpc.Tool;
import io.github.copilotgrpc.Turn;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

/** Has turns in a session, which continues where an earlier run left it: java Newcomer SESSION PROMPT... */
public final class Newcomer {
	record Query(String city) {}

	public static void main(String[] arguments) {
		Tool weather = Tool.of(
				"get_weather", "Tells the weather in a city.", Query.class, query -> "rain in " + query.city());
		AtomicBoolean asked = new AtomicBoolean();
		SessionOptions options = new SessionOptions().tools(weather).onPermission(request -> {
			boolean again = asked.getAndSet(true);
			System.out.println((again ? "refused " : "approved ") + request.kind());
			return again ? Decision.reject("Once is enough.") : Decision.approve();
		});
		try (CopilotClient client = CopilotClient.connect();
				CopilotSession session = client.openSession(arguments[0], options)) {
			for (String prompt : List.of(arguments).subList(1, arguments.length)) {
				try (Turn turn = session.run(prompt)) {
					turn.deltas().forEach(System.out::print);
					System.out.println("\n" + turn.outcome());
				}
			}
			try (var sessions = client.listSessions()) {
				for (SessionInfo info : sessions) {
					System.out.println(info.id() + " is " + info.state());
				}
			}
			session.exportTo(Path.of("session.tar.gz"));
		}
	}
}
