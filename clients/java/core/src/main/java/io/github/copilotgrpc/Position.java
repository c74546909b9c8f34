package io.github.copilotgrpc;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A position in a session's journal. Positions are ordered, and stay valid across restarts of the server.
 *
 * @param epoch generation of the journal, an unsigned number
 * @param seq sequence number, an unsigned number
 */
public record Position(long epoch, long seq) implements Comparable<Position> {
	private static final Pattern TEXT = Pattern.compile("(\\d{1,20})/(\\d{1,20})");

	/**
	 * Reads the text form.
	 *
	 * @param text EPOCH/SEQ
	 * @return the position
	 * @throws IllegalArgumentException the text has another form
	 */
	public static Position parse(String text) {
		Matcher matcher = TEXT.matcher(text);
		if (!matcher.matches()) {
			throw new IllegalArgumentException("\"" + text + "\" is no position: want EPOCH/SEQ");
		}
		return new Position(Long.parseUnsignedLong(matcher.group(1)), Long.parseUnsignedLong(matcher.group(2)));
	}

	/**
	 * Returns the position of a message.
	 *
	 * @param message the message
	 * @return the position
	 */
	public static Position of(io.github.copilotgrpc.bridge.v1.Position message) {
		return new Position(message.getEpoch(), message.getSeq());
	}

	/**
	 * Returns the position as a message.
	 *
	 * @return the message
	 */
	public io.github.copilotgrpc.bridge.v1.Position toMessage() {
		return io.github.copilotgrpc.bridge.v1.Position.newBuilder().setEpoch(epoch).setSeq(seq).build();
	}

	@Override
	public int compareTo(Position other) {
		int byEpoch = Long.compareUnsigned(epoch, other.epoch);
		return byEpoch != 0 ? byEpoch : Long.compareUnsigned(seq, other.seq);
	}

	/** Returns the text form, EPOCH/SEQ. */
	@Override
	public String toString() {
		return Long.toUnsignedString(epoch) + "/" + Long.toUnsignedString(seq);
	}
}
