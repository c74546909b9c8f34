package io.github.copilotgrpc;

import io.github.copilotgrpc.errors.ServerIncompatibleException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The versions of servers that this library works with: from 0.1, before 1.0. */
final class ServerVersion {
	private static final Pattern VERSION = Pattern.compile("v?(\\d{1,6})\\.(\\d{1,6})(\\..*)?");

	private ServerVersion() {}

	/**
	 * Throws ServerIncompatibleException if a version is outside the window. Builds of developers have no such
	 * version.
	 */
	static void check(String version, Target address) {
		Matcher matcher = VERSION.matcher(version.split("-", 2)[0]);
		if (!matcher.matches()) {
			return;
		}
		int major = Integer.parseInt(matcher.group(1));
		int minor = Integer.parseInt(matcher.group(2));
		if (major != 0 || minor < 1) {
			throw new ServerIncompatibleException("the server at " + address + " has version " + version
					+ "; this library works with 0.1 up to, but not including, 1.0");
		}
	}
}
