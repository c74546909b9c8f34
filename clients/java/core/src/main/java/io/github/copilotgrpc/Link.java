package io.github.copilotgrpc;

import io.github.copilotgrpc.bridge.v1.AttachHeartbeat;
import io.github.copilotgrpc.bridge.v1.AttachRequest;
import io.github.copilotgrpc.bridge.v1.AttachResponse;
import io.github.copilotgrpc.bridge.v1.AttachStart;
import io.github.copilotgrpc.bridge.v1.AttachStarted;
import io.github.copilotgrpc.bridge.v1.CallbackServiceGrpc;
import io.github.copilotgrpc.errors.ConnectionLostException;
import io.github.copilotgrpc.errors.CopilotException;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.SynchronizationContext;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** One Attach stream. Its methods and callbacks run in the participant's context. */
final class Link extends ClientCall.Listener<AttachResponse> {
	/** Receives what happens on a link. */
	interface Owner {
		/** A frame arrived. */
		void received(Link link, AttachResponse frame);

		/** The stream ended by itself. */
		void ended(Link link, CopilotException error);
	}

	private record Outgoing(AttachRequest frame, CompletableFuture<Void> taken) {}

	/** Completes with the server's `started`, or fails with the link before that. */
	final CompletableFuture<AttachStarted> started = new CompletableFuture<>();
	private final Connection connection;
	private final SynchronizationContext sync;
	private final Owner owner;
	private final ClientCall<AttachRequest, AttachResponse> call;
	private final Queue<Outgoing> out = new ArrayDeque<>();
	private SynchronizationContext.ScheduledHandle beat;
	private long heardAt = System.nanoTime();
	private boolean down;
	private boolean closed;

	Link(Connection connection, SynchronizationContext sync, Owner owner) {
		this.connection = connection;
		this.sync = sync;
		this.owner = owner;
		this.call = connection.call(CallbackServiceGrpc.getAttachMethod(), Duration.ZERO);
	}

	void open(AttachStart start) {
		call.start(this, new Metadata());
		call.request(1);
		call.sendMessage(AttachRequest.newBuilder().setStart(start).build());
		scheduleBeat();
	}

	/** Nothing more is read from the link. */
	boolean isDown() {
		return down;
	}

	/** Sends a frame. The future completes when gRPC has taken the frame, or the link is down. */
	CompletableFuture<Void> send(AttachRequest frame) {
		CompletableFuture<Void> taken = new CompletableFuture<>();
		if (down) {
			taken.complete(null);
		} else {
			out.add(new Outgoing(frame, taken));
			drain();
		}
		return taken;
	}

	/** Notes that nothing more is read. Senders continue. */
	void down() {
		down = true;
		Outgoing waiting = out.poll();
		while (waiting != null) {
			waiting.taken().complete(null);
			waiting = out.poll();
		}
	}

	/** Drops the stream. */
	void close() {
		if (closed) {
			return;
		}
		closed = true;
		down();
		if (beat != null) {
			beat.cancel();
		}
		call.cancel("the link is closed", null);
		started.completeExceptionally(new ConnectionLostException("the link is closed"));
	}

	@Override
	public void onMessage(AttachResponse frame) {
		sync.execute(() -> {
			heardAt = System.nanoTime();
			if (!closed && !down) {
				owner.received(this, frame);
				call.request(1);
			}
		});
	}

	@Override
	public void onReady() {
		sync.execute(this::drain);
	}

	@Override
	public void onClose(Status status, Metadata trailers) {
		sync.execute(() -> ended(status.isOk()
				? new ConnectionLostException("the server ended the attach stream")
				: Errors.of(status, trailers)));
	}

	private void ended(CopilotException error) {
		if (closed) {
			return;
		}
		boolean wasDown = down;
		boolean dialing = !started.isDone();
		started.completeExceptionally(error);
		close();
		if (!wasDown && !dialing) {
			owner.ended(this, error);
		}
	}

	private void drain() {
		while (!out.isEmpty() && call.isReady()) {
			Outgoing next = out.poll();
			call.sendMessage(next.frame());
			next.taken().complete(null);
		}
	}

	private void scheduleBeat() {
		beat = sync.schedule(
				this::beat, Connection.HEARTBEAT.toNanos(), TimeUnit.NANOSECONDS, connection.timer());
	}

	private void beat() {
		if (closed) {
			return;
		}
		if (System.nanoTime() - heardAt > Connection.SILENCE.toNanos()) {
			ended(new ConnectionLostException("the server is silent"));
			return;
		}
		if (out.isEmpty()) {
			send(AttachRequest.newBuilder().setHeartbeat(AttachHeartbeat.getDefaultInstance()).build());
		}
		scheduleBeat();
	}
}
