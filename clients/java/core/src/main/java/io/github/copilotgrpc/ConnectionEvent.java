package io.github.copilotgrpc;

import io.github.copilotgrpc.errors.CopilotException;

/** A change of a participant's connection. */
public sealed interface ConnectionEvent {
	/**
	 * The stream broke; the library reconnects.
	 *
	 * @param error the cause
	 */
	record Disconnected(CopilotException error) implements ConnectionEvent {}

	/**
	 * The stream is open again.
	 *
	 * @param participantId the participant, which changes after a {@link ParticipantExpired}
	 */
	record Reconnected(String participantId) implements ConnectionEvent {}

	/**
	 * The participant's grace time passed before the stream was open again. The program joins as a new participant;
	 * callbacks that waited for the old one may have been given their default answers.
	 *
	 * @param participantId the expired participant
	 */
	record ParticipantExpired(String participantId) implements ConnectionEvent {}
}
