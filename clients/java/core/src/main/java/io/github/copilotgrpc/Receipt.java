package io.github.copilotgrpc;

/**
 * The CLI accepted a prompt.
 *
 * @param messageId id of the message
 * @param position the journal's last position at that time: the turn's events are later
 * @param inMemoryOnly the server could not write the prompt to its disk: the prompt does not survive the server
 */
public record Receipt(String messageId, Position position, boolean inMemoryOnly) {}
