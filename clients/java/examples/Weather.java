import io.github.copilotgrpc.CopilotClient;
import io.github.copilotgrpc.CopilotSession;
import io.github.copilotgrpc.Decision;
import io.github.copilotgrpc.ParticipantOptions;
import io.github.copilotgrpc.PermissionRequest;
import io.github.copilotgrpc.SessionOptions;
import io.github.copilotgrpc.Tool;
import io.github.copilotgrpc.Turn;
import java.util.Scanner;

/** Talks to an agent and asks you for permissions. With an argument it brings the agent's tool instead. */
public final class Weather {
	private static final Scanner TERMINAL = new Scanner(System.in);

	record Query(String city) {}

	static String read(String prompt) {
		System.out.print(prompt);
		return TERMINAL.hasNextLine() ? TERMINAL.nextLine() : "";
	}

	static String getWeather(Query query) {
		System.out.println("get_weather runs for " + query.city());
		return "rain in " + query.city();
	}

	static Decision ask(PermissionRequest request) {
		String answer = read("\nAllow " + request.kind() + "? [y/n] ");
		return answer.equals("y") ? Decision.approve() : Decision.reject("The user said no.");
	}

	static void work(CopilotClient client) {
		Tool tool = Tool.of("get_weather", "Tells the weather in a city.", Query.class, Weather::getWeather);
		try (CopilotSession session = client.joinSession("weather", new ParticipantOptions().tools(tool))) {
			read("The worker of " + session.id() + " is ready. Press Enter to end it.\n");
		}
	}

	static void talk(CopilotClient client) {
		SessionOptions options = new SessionOptions().onPermission(Weather::ask);
		try (CopilotSession session = client.openSession("weather", options)) {
			for (String prompt = read("> "); !prompt.isEmpty(); prompt = read("> ")) {
				try (Turn turn = session.run(prompt)) {
					turn.deltas().forEach(System.out::print);
					System.out.println();
					turn.outcome().orThrow();
				}
			}
		}
	}

	public static void main(String[] arguments) {
		try (CopilotClient client = CopilotClient.connect()) {
			if (arguments.length > 0) {
				work(client);
			} else {
				talk(client);
			}
		}
	}
}
