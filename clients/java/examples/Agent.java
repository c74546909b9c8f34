import io.github.copilotgrpc.CopilotClient;
import io.github.copilotgrpc.CopilotSession;
import io.github.copilotgrpc.Decision;
import io.github.copilotgrpc.Description;
import io.github.copilotgrpc.PermissionRequest;
import io.github.copilotgrpc.Permissions;
import io.github.copilotgrpc.SessionOptions;
import io.github.copilotgrpc.Tool;
import io.github.copilotgrpc.ToolException;
import io.github.copilotgrpc.Turn;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;

/** An agent with a tool, and a person who decides about permissions: java Agent "What is the weather in Paris?" */
public final class Agent {
	enum Unit { C, F }

	record Query(@Description("The city's English name.") String city, Optional<Unit> unit) {}

	record Weather(String sky, int temperature) {}

	private static final Map<String, String> SKY = Map.of("Paris", "rain", "Cairo", "sun");

	static Weather getWeather(Query query) throws ToolException {
		String sky = SKY.get(query.city());
		if (sky == null) {
			throw new ToolException("There is no forecast for " + query.city() + ".");
		}
		return new Weather(sky, query.unit().orElse(Unit.C) == Unit.C ? 12 : 54);
	}

	/** Runs in a thread of its own, so it may block. */
	static Decision askPerson(PermissionRequest request) {
		System.out.println("The agent asks for permission: " + request.kind() + " [y/n/s]");
		return switch (new Scanner(System.in).nextLine().strip()) {
			case "y" -> Decision.approve();
			case "s" -> Decision.approveForSession();
			default -> Decision.reject();
		};
	}

	public static void main(String[] arguments) {
		Tool weather = Tool.of("get_weather", "Tells the weather in a city.", Query.class, Agent::getWeather);
		SessionOptions options = new SessionOptions().tools(weather)
				.onPermission(Permissions.approve("read"), Agent::askPerson);
		try (CopilotClient client = CopilotClient.connect();
				CopilotSession session = client.createSession(options);
				Turn turn = session.run(arguments[0])) {
			for (String text : turn.deltas()) {
				System.out.print(text);
			}
			System.out.println();
			turn.outcome().orThrow();
			session.delete();
		}
	}
}
