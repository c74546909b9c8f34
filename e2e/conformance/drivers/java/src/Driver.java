import io.github.copilotgrpc.conformance.v1.Control;
import io.github.copilotgrpc.conformance.v1.Request;
import io.github.copilotgrpc.conformance.v1.Response;
import java.io.IOException;
import java.io.UncheckedIOException;

/** The conformance suite's driver of the Java library. It uses only the library's public API. */
final class Driver {
	private Driver() {}

	public static void main(String[] arguments) throws Exception {
		Request request;
		while ((request = Request.parseDelimitedFrom(System.in)) != null) {
			var runner = new CaseRunner(Driver::control);
			write(Response.newBuilder().setResult(runner.run(request.getCase())).build());
		}
		System.exit(0); // also if a step still runs
	}

	/** Asks the runner for something, and waits. */
	private static void control(String name) {
		try {
			write(Response.newBuilder().setControl(Control.newBuilder().setName(name)).build());
			Request.parseDelimitedFrom(System.in); // Proceed
		} catch (IOException e) {
			throw new UncheckedIOException(e);
		}
	}

	private static void write(Response response) throws IOException {
		response.writeDelimitedTo(System.out);
		System.out.flush();
	}
}
