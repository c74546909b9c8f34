package io.github.copilotgrpc;

import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** Bytes that arrive in pieces. The server waits for the answer to each piece, so the queue stays short. */
final class PieceStream extends InputStream {
	private static final byte[] END = {};
	private static final byte[] FAILED = {};

	private final BlockingQueue<byte[]> pieces = new LinkedBlockingQueue<>();
	private byte[] current = {0};
	private int at = 1;

	void add(byte[] piece) {
		if (piece.length > 0) {
			pieces.add(piece);
		}
	}

	void end() {
		pieces.add(END);
	}

	/** Ends the stream with an error. */
	void fail() {
		pieces.add(FAILED);
	}

	@Override
	public int read() throws IOException {
		byte[] one = new byte[1];
		return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
	}

	@Override
	public int read(byte[] target, int offset, int length) throws IOException {
		Objects.checkFromIndexSize(offset, length, target.length);
		if (length == 0) {
			return 0;
		}
		if (at == current.length && current.length > 0) {
			current = take();
			at = 0;
		}
		if (current == FAILED) {
			throw new IOException("the request was cancelled");
		}
		if (current == END) {
			return -1;
		}
		int size = Math.min(length, current.length - at);
		System.arraycopy(current, at, target, offset, size);
		at += size;
		return size;
	}

	private byte[] take() throws InterruptedIOException {
		try {
			return pieces.take();
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
			throw new InterruptedIOException("interrupted");
		}
	}
}
