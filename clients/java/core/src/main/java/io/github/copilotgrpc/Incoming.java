package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.AttachDone;
import io.github.copilotgrpc.bridge.v1.AttachFailed;
import io.github.copilotgrpc.bridge.v1.AttachResponse;
import io.github.copilotgrpc.bridge.v1.CloseReason;
import io.github.copilotgrpc.bridge.v1.SubscribeResponse;
import io.github.copilotgrpc.errors.ConnectionLostException;
import io.github.copilotgrpc.errors.CopilotException;
import io.github.copilotgrpc.errors.SessionClosedException;
import java.util.Locale;

/** Takes the frames of a participant, in its context. Nothing here waits. */
final class Incoming {
	private static final String CLOSE_REASON = "CLOSE_REASON_";

	/** What the frames need of their participant. */
	interface Owner {
		/** The session's id. */
		String sessionId();

		/** The participant's id. */
		String participantId();

		/** Ends the use of a link. The cause is null if the server asks for a new stream. */
		void lost(Link link, CopilotException cause);
	}

	private final Progress progress;
	private final Calls calls;
	private final Commands commands;
	private final Models models; // null for none
	private final Owner owner;

	Incoming(Progress progress, Calls calls, Commands commands, Models models, Owner owner) {
		this.progress = progress;
		this.calls = calls;
		this.commands = commands;
		this.models = models;
		this.owner = owner;
	}

	void take(Link from, AttachResponse frame) {
		switch (frame.getFrameCase()) {
			case STREAM -> takeStream(from, frame.getStream());
			case DONE -> {
				AttachDone done = frame.getDone();
				progress.note(done.getPosition());
				if (done.hasCallbackId()) {
					calls.settle(done.getCallbackId(), null);
				} else {
					commands.replied(done.getCommandId(), null);
				}
			}
			case FAILED -> failed(frame.getFailed());
			default -> { } // newer than this library
		}
	}

	private void failed(AttachFailed frame) {
		CopilotException failure = Errors.of(frame.getFailure());
		switch (frame.getSubjectCase()) {
			case CALLBACK_ID -> calls.settle(frame.getCallbackId(), failure);
			case COMMAND_ID -> commands.replied(frame.getCommandId(), failure);
			case MODEL_REQUEST_ID -> {
				if (models != null) {
					models.end(frame.getModelRequestId());
				}
			}
			default -> { }
		}
	}

	private void takeStream(Link from, SubscribeResponse frame) {
		progress.note(frame.getResumeAfter());
		switch (frame.getFrameCase()) {
			case STARTED -> calls.reconcile(frame.getStarted().getPendingCallbacksList(), owner.participantId());
			case GAP -> calls.reconcile(frame.getGap().getPendingCallbacksList(), owner.participantId());
			case CALLBACK_REQUESTED -> calls.ask(
					frame.getCallbackRequested().getCallback(), frame.getCallbackRequested().getOffered());
			case CALLBACK_RESOLVED -> calls.withdraw(frame.getCallbackResolved().getCallbackId());
			case RUNTIME_RESTARTED -> Log.warn("runtime restarted", frame.getRuntimeRestarted().getCause());
			case GO_AWAY -> owner.lost(from, null);
			case CLOSED -> owner.lost(from, closed(frame.getClosed().getReason(), frame.getClosed().getReasonValue()));
			default -> { } // newer than this library, or an event
		}
	}

	private CopilotException closed(CloseReason reason, int value) {
		if (reason == CloseReason.CLOSE_REASON_DRAINING) {
			return new ConnectionLostException("the server is draining");
		}
		String name = reason == CloseReason.UNRECOGNIZED
				? Integer.toString(value)
				: reason.name().substring(CLOSE_REASON.length()).toLowerCase(Locale.ROOT);
		return new SessionClosedException(owner.sessionId(), name);
	}
}
