import io.github.copilotgrpc.CopilotClient;
import io.github.copilotgrpc.CopilotSession;
import io.github.copilotgrpc.Decision;
import io.github.copilotgrpc.ParticipantOptions;
import io.github.copilotgrpc.SessionOptions;
import io.github.copilotgrpc.Tool;
import java.util.stream.Collectors;

/** Two participants in one session: one brings a tool, the other one asks and decides about permissions. */
public final class Shared {
	record Query(String city) {}

	public static void main(String[] arguments) {
		Tool weather = Tool.of("get_weather", "Tells the weather in a city.", Query.class, query -> {
			System.out.println("worker: tells the weather in " + query.city());
			return "rain in " + query.city();
		});
		SessionOptions options = new SessionOptions().onPermission(request -> {
			System.out.println("boss: permits " + request.kind());
			return request.kind().equals("custom-tool") ? Decision.approve() : Decision.reject();
		});
		try (CopilotClient boss = CopilotClient.builder().name("boss").connect();
				CopilotClient worker = CopilotClient.builder().name("worker").connect();
				CopilotSession session = boss.createSession(options);
				CopilotSession joined = worker.joinSession(session.id(), new ParticipantOptions().tools(weather))) {
			System.out.println("participants: " + joined.get().proto().getParticipantsList().stream()
					.map(participant -> participant.getName()).sorted().collect(Collectors.joining(", ")));
			System.out.println("agent: " + session.sendAndWait("What is the weather in Paris?").text());
			session.delete();
		}
	}
}
