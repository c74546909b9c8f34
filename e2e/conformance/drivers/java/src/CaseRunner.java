import io.github.copilotgrpc.Answers;
import io.github.copilotgrpc.Attachment;
import io.github.copilotgrpc.CopilotClient;
import io.github.copilotgrpc.CopilotSession;
import io.github.copilotgrpc.Decision;
import io.github.copilotgrpc.EventQuery;
import io.github.copilotgrpc.Gap;
import io.github.copilotgrpc.ItemStream;
import io.github.copilotgrpc.Prompt;
import io.github.copilotgrpc.Reconnect;
import io.github.copilotgrpc.SessionInfo;
import io.github.copilotgrpc.StreamItem;
import io.github.copilotgrpc.Token;
import io.github.copilotgrpc.Turn;
import io.github.copilotgrpc.bridge.v1.SessionFilter;
import io.github.copilotgrpc.conformance.v1.AwaitObservation;
import io.github.copilotgrpc.conformance.v1.Case;
import io.github.copilotgrpc.conformance.v1.Connect;
import io.github.copilotgrpc.conformance.v1.Endpoint;
import io.github.copilotgrpc.conformance.v1.Event;
import io.github.copilotgrpc.conformance.v1.Events;
import io.github.copilotgrpc.conformance.v1.Observation;
import io.github.copilotgrpc.conformance.v1.Open;
import io.github.copilotgrpc.conformance.v1.Outcome;
import io.github.copilotgrpc.conformance.v1.Resolve;
import io.github.copilotgrpc.conformance.v1.Result;
import io.github.copilotgrpc.conformance.v1.Run;
import io.github.copilotgrpc.conformance.v1.Send;
import io.github.copilotgrpc.conformance.v1.Step;
import io.github.copilotgrpc.conformance.v1.StepResult;
import io.github.copilotgrpc.conformance.v1.Watch;
import io.github.copilotgrpc.errors.TurnFailedException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.stream.Collectors;

/** Runs one case. */
final class CaseRunner {
	/** A step in the background. */
	private static final class Background {
		Thread thread;
		/** The call, if the library has it as a future: cancelling it is the language's way. */
		volatile CompletableFuture<?> call;
		volatile AutoCloseable stream;
		volatile boolean cancelled;
		volatile boolean abortTurn;
	}

	private static final Logger LOG = Logger.getLogger("io.github.copilotgrpc");

	private final Handler log = new Handler() {
		@Override
		public void publish(LogRecord entry) {
			if (entry.getLevel().intValue() >= Level.WARNING.intValue()) {
				observe("", "log", "", "");
			}
		}

		@Override
		public void flush() {}

		@Override
		public void close() {}
	};
	private final Consumer<String> control;
	private final ReentrantLock lock = new ReentrantLock();
	private final Condition changed = lock.newCondition();
	private final Map<String, CopilotClient> clients = new HashMap<>();
	private final Map<String, CopilotSession> sessions = new TreeMap<>();
	private final Map<String, Background> background = new HashMap<>();
	private final List<Observation.Builder> observations = new ArrayList<>();
	private final Set<String> gates = new HashSet<>();
	private Endpoint endpoint;

	CaseRunner(Consumer<String> control) {
		this.control = control;
	}

	Result run(Case message) throws Exception {
		endpoint = message.getEndpoint();
		Set<String> aborting = new HashSet<>();
		message.getStepsList().stream().filter(step -> step.hasCancel() && step.getCancel().getAbortTurn())
				.forEach(step -> aborting.add(step.getCancel().getStep()));
		List<StepResult.Builder> results = new ArrayList<>();
		for (Step step : message.getStepsList()) {
			StepResult.Builder result = StepResult.newBuilder();
			results.add(result);
			var task = new Background();
			task.abortTurn = aborting.contains(step.getBackground());
			if (step.getBackground().isEmpty()) {
				step(step, result, task);
				continue;
			}
			task.thread = new Thread(() -> step(step, result, task), step.getBackground());
			background.put(step.getBackground(), task);
			task.thread.start();
		}
		LOG.removeHandler(log);
		clients.values().forEach(CopilotClient::close);
		for (Background task : background.values()) {
			cancel(task);
			task.thread.interrupt();
			task.thread.join();
		}
		Result.Builder result = Result.newBuilder().setName(message.getName());
		results.forEach(each -> result.addSteps(each.build()));
		update(() -> observations.forEach(each -> result.addObservations(each.build())));
		return result.build();
	}

	private void step(Step step, StepResult.Builder result, Background task) {
		try {
			act(step, result, task);
			if (task.cancelled && task.stream != null) { // the sequence of a stream that was closed ends
				result.setError(Failures.cancelled());
			}
		} catch (Throwable e) {
			result.setError(task.cancelled ? Failures.cancelled() : Failures.of(e));
		}
	}

	private void act(Step step, StepResult.Builder result, Background task) throws Throwable {
		switch (step.getActionCase()) {
			case CONNECT -> connect(step.getConnect());
			case OPEN -> open(step.getOpen());
			case SEND -> session(step.getSend().getSession()).send(prompt(step.getSend()));
			case SEND_AND_WAIT -> {
				Prompt prompt = prompt(step.getSendAndWait());
				var call = session(step.getSendAndWait().getSession())
						.sendAndWaitAsync(task.abortTurn ? prompt.abortOnCancel() : prompt);
				task.call = call;
				result.setOutcome(outcome(Failures.join(call)));
			}
			case RUN -> run(step.getRun(), result, task);
			case EVENTS -> events(step.getEvents(), result, task);
			case ABORT -> result.setTurnWasRunning(session(step.getAbort().getSession()).abort());
			case CANCEL -> cancel(background.get(step.getCancel().getStep()));
			case AWAIT -> background.get(step.getAwait().getStep()).thread.join();
			case AWAIT_OBSERVATION -> {
				AwaitObservation wanted = step.getAwaitObservation();
				until(() -> observations.stream().filter(each -> fits(each, wanted)).count() >= wanted.getCount());
			}
			case RELEASE -> update(() -> gates.add(step.getRelease().getGate()));
			case RESOLVE -> resolve(step.getResolve());
			case GET -> result.setText(session(step.getGet().getSession()).get().state().name());
			case LIST -> list(step.getList(), result);
			case DELETE -> session(step.getDelete().getSession()).delete();
			case DISCONNECT -> session(step.getDisconnect().getSession()).disconnect();
			case CLOSE -> session(step.getClose().getSession()).close();
			case SET_TOOLS -> {
				String session = step.getSetTools().getSession();
				session(session).setTools(CaseHandlers.tools(this, session, step.getSetTools().getToolsList()));
			}
			case CONTROL -> control.accept(step.getControl().getName());
			case WATCH -> watch(step.getWatch());
			case LABELS -> {
				var labels = step.getLabels();
				result.putAllLabels(
						session(labels.getSession()).updateLabels(labels.getSetMap(), labels.getRemoveList()));
			}
			case USAGE -> {
				CopilotClient client = clients.get(step.getUsage().getClient());
				Inboxes.usage(client, session(step.getUsage().getSession()).id(), result);
			}
			case INBOX -> Inboxes.inbox(clients.get(step.getInbox().getClient()), step.getInbox());
			case AWAIT_END -> throw session(step.getAwaitEnd().getSession()).ended().get();
			default -> throw new UnsupportedOperationException("a step of the kind " + step.getActionCase());
		}
	}

	private static boolean fits(Observation.Builder each, AwaitObservation wanted) {
		return each.getKind().equals(wanted.getKind())
				&& (wanted.getName().isEmpty() || each.getName().equals(wanted.getName()))
				&& (each.getWithdrawn() || !wanted.getWithdrawn());
	}

	private static void cancel(Background task) throws Exception {
		task.cancelled = true;
		if (task.call != null) {
			task.call.cancel(true);
		}
		if (task.stream != null) {
			task.stream.close();
		}
	}

	private void connect(Connect step) {
		int giveUp = step.getGiveUpAfterMs() > 0 ? step.getGiveUpAfterMs() : 30_000;
		var builder = CopilotClient.builder().target(endpoint.getTarget())
				.reconnect(new Reconnect(Duration.ofMillis(10), Duration.ofMillis(100), Duration.ofMillis(giveUp)));
		if (step.getChangingToken()) {
			var calls = new AtomicInteger();
			builder.token(() -> "token-" + calls.incrementAndGet());
		} else if (!step.getTokenFile().isEmpty()) {
			builder.token(Token.file(Path.of(step.getTokenFile())));
		} else if (!endpoint.getToken().isEmpty()) {
			builder.token(Token.of(endpoint.getToken()));
		}
		if (step.getObserveLog()) {
			LOG.addHandler(log);
		}
		if (!endpoint.getCaFile().isEmpty()) {
			builder.trust(Path.of(endpoint.getCaFile()));
		}
		clients.put(step.getClient(), builder.connect());
	}

	private void open(Open step) {
		CopilotClient client = clients.get(step.getClient());
		String id = step.getIdOf().isEmpty() ? step.getId() : session(step.getIdOf()).id();
		CopilotSession session = switch (step.getHow()) {
			case CREATE -> {
				var options = CaseHandlers.sessionOptions(this, step);
				yield client.createSession(id.isEmpty() ? options : options.sessionId(id));
			}
			case RESUME -> client.resumeSession(id, CaseHandlers.sessionOptions(this, step));
			case OPEN_OR_CREATE -> client.openSession(id, CaseHandlers.sessionOptions(this, step));
			case JOIN -> client.joinSession(id, CaseHandlers.participantOptions(this, step));
			default -> client.session(id);
		};
		update(() -> sessions.put(step.getSession(), session));
	}

	CopilotSession session(String name) {
		lock.lock();
		try {
			CopilotSession session = sessions.get(name);
			if (session == null) {
				throw new IllegalArgumentException("there is no session " + name);
			}
			return session;
		} finally {
			lock.unlock();
		}
	}

	private void run(Run step, StepResult.Builder result, Background task) {
		Prompt prompt = Prompt.of(step.getText());
		Turn turn = session(step.getSession()).run(task.abortTurn ? prompt.abortOnCancel() : prompt);
		task.stream = turn;
		if (step.getDeltas()) {
			for (String text : turn.deltas()) {
				result.setText(result.getText() + text);
			}
		} else {
			for (StreamItem item : turn) {
				Event event = event(item);
				if (step.getTypesCount() == 0 || step.getTypesList().contains(event.getType())) {
					result.addEvents(event);
				}
			}
		}
		result.setOutcome(outcome(turn.outcome()));
	}

	private void events(Events step, StepResult.Builder result, Background task) throws Exception {
		EventQuery query = EventQuery.all();
		query = switch (step.getFrom()) {
			case BEGINNING -> query.fromBeginning();
			case NOW -> query.fromNow();
			default -> query;
		};
		if (step.getTypesCount() > 0) {
			query = query.types(step.getTypesList().toArray(String[]::new));
		}
		CopilotSession session = session(step.getSession());
		try (ItemStream<StreamItem> items = step.getHistory() ? session.history(query) : session.events(query)) {
			task.stream = items;
			for (StreamItem item : items) {
				result.addEvents(event(item));
				if (result.getEventsCount() == step.getPauseAfter()) {
					gate(observe(step.getSession(), "events", "", ""), step.getGate());
				} else if (result.getEventsCount() == step.getCount()) {
					break;
				}
				if (!step.getUntil().isEmpty() && event(item).getType().equals(step.getUntil())) {
					break;
				}
			}
		}
	}

	private void resolve(Resolve step) {
		CopilotSession session = session(step.getSession());
		String id = step.getCallbackId();
		while (id.isEmpty()) {
			var pending = session.pending();
			id = pending.isEmpty() ? "" : pending.get(0).callback().getCallbackId();
		}
		Decision decision = step.getPermission().equals("approve") ? Decision.approve() : Decision.reject();
		session.resolve(id, step.hasToolText() ? Answers.tool(step.getToolText()) : Answers.permission(decision));
	}

	private void list(io.github.copilotgrpc.conformance.v1.List step, StepResult.Builder result) {
		var filter = SessionFilter.newBuilder().putAllLabels(step.getLabelsMap()).build();
		try (var list = clients.get(step.getClient()).listSessions(filter)) {
			Set<String> found = list.stream().map(SessionInfo::id).collect(Collectors.toSet());
			sessions.forEach((name, session) -> {
				if (found.contains(session.id())) {
					result.addSessions(name);
				}
			});
		}
	}

	private void watch(Watch step) {
		int seen = 0;
		try (var changes = clients.get(step.getClient()).watchSessions()) {
			for (var change : changes) {
				seen += change.kind().name().equals(step.getChange().toUpperCase()) ? 1 : 0;
				if (seen == step.getCount()) {
					return;
				}
			}
		}
	}

	/** Records a call of a function. */
	Observation.Builder observe(String session, String kind, String name, String argumentsJson) {
		Observation.Builder observation = Observation.newBuilder().setSession(session).setKind(kind).setName(name)
				.setArgumentsJson(argumentsJson);
		update(() -> observations.add(observation));
		return observation;
	}

	/** Waits at a gate, if there is one, or until the answer is not wanted any more: the thread is interrupted then. */
	void gate(Observation.Builder observation, String gate) throws InterruptedException {
		if (gate.isEmpty()) {
			return;
		}
		try {
			until(() -> gates.contains(gate));
		} catch (InterruptedException e) {
			update(() -> observation.setWithdrawn(true));
			throw e;
		}
	}

	private void update(Runnable change) {
		lock.lock();
		try {
			change.run();
			changed.signalAll();
		} finally {
			lock.unlock();
		}
	}

	private void until(BooleanSupplier holds) throws InterruptedException {
		lock.lockInterruptibly();
		try {
			while (!holds.getAsBoolean()) {
				changed.await();
			}
		} finally {
			lock.unlock();
		}
	}

	private static Prompt prompt(Send step) {
		Attachment[] attachments = step.getAttachmentsList().stream().map(CaseRunner::attachment)
				.toArray(Attachment[]::new);
		Prompt prompt = Prompt.of(step.getText()).attach(attachments);
		if (step.getTimeoutMs() > 0) {
			prompt = prompt.timeout(Duration.ofMillis(step.getTimeoutMs()));
		}
		return step.getImmediate() ? prompt.immediate() : prompt;
	}

	private static Attachment attachment(io.github.copilotgrpc.conformance.v1.Attachment each) {
		return switch (each.getSourceCase()) {
			case PATH -> Attachment.file(each.getPath());
			case STREAM -> Attachment.stream(each.getStream().newInput(), each.getMimeType(), each.getName());
			default -> Attachment.data(each.getData().toByteArray(), each.getMimeType(), each.getName());
		};
	}

	private static Outcome outcome(io.github.copilotgrpc.Outcome outcome) {
		String type = outcome.error().map(error -> error.getErrorType()).orElse("");
		return Outcome.newBuilder().setStatus(outcome.status().name()).setText(outcome.text()).setErrorType(type)
				.setError(error(outcome)).build();
	}

	/** The text of the library's error of an outcome; empty if there is none. */
	private static String error(io.github.copilotgrpc.Outcome outcome) {
		try {
			outcome.orThrow();
			return "";
		} catch (TurnFailedException e) {
			return e.getMessage();
		}
	}

	private static Event event(StreamItem item) {
		Event.Builder event = Event.newBuilder();
		if (item instanceof Gap gap) {
			event.setGap(gap.reason().name());
			return event.setEpoch(gap.position().epoch()).setSeq(gap.position().seq()).build();
		}
		var found = (io.github.copilotgrpc.Event) item;
		return event.setType(found.type()).setEpoch(found.position().epoch()).setSeq(found.position().seq()).build();
	}
}
