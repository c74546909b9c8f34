package io.github.copilotgrpc;

import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/** The pages of a list. */
final class Pages<P> implements Source<P> {
	private final Function<String, CompletableFuture<P>> read;
	private final Function<P, String> nextToken;
	private volatile String token = "";
	private volatile boolean ended;

	/** @param read reads the page of a token, which is empty for the first page */
	Pages(Function<String, CompletableFuture<P>> read, Function<P, String> nextToken) {
		this.read = read;
		this.nextToken = nextToken;
	}

	@Override
	public CompletableFuture<P> next() {
		if (ended) {
			return CompletableFuture.completedFuture(null);
		}
		return Futures.map(read.apply(token), page -> {
			token = nextToken.apply(page);
			ended = ended || token.isEmpty();
			return page;
		});
	}

	@Override
	public void close() {
		ended = true;
	}
}
