package fault

// Reasons of the runtime layer: finding, starting and losing a CLI process.
const (
	// CLINotFound says that no Copilot CLI executable could be found.
	CLINotFound Reason = "CLI_NOT_FOUND"
	// CLIInstallFailed says that the private copy could not be installed.
	CLIInstallFailed Reason = "CLI_INSTALL_FAILED"
	// CLIUnverified says that an executable, or what it unpacked, is not what was published.
	CLIUnverified Reason = "CLI_UNVERIFIED"
	// CLIUnsupported says that the CLI's version or protocol is not one we speak.
	CLIUnsupported Reason = "CLI_UNSUPPORTED"
	// CLIStartFailed says that the CLI did not get as far as answering.
	CLIStartFailed Reason = "CLI_START_FAILED"
	// CLIExited says that a working runtime ended, by itself or on request.
	CLIExited Reason = "CLI_EXITED"
	// CLIHung says that a runtime stopped answering and was killed for it.
	CLIHung Reason = "CLI_HUNG"
	// CLIProtocolError says that a runtime sent what is not its protocol.
	CLIProtocolError Reason = "CLI_PROTOCOL_ERROR"
	// CLICrashLoop says that runtimes die faster than it makes sense to start them.
	CLICrashLoop Reason = "CLI_CRASH_LOOP"
	// RuntimeDialFailed says that a running CLI server could not be reached.
	RuntimeDialFailed Reason = "RUNTIME_DIAL_FAILED"
	// RuntimeAuthFailed says that a running CLI server refused our token.
	RuntimeAuthFailed Reason = "RUNTIME_AUTH_FAILED"
	// ProfileInvalid says that a runtime's profile asks for what it may not.
	ProfileInvalid Reason = "PROFILE_INVALID"
	// RuntimeStopping says that the runtime layer is being shut down.
	RuntimeStopping Reason = "RUNTIME_STOPPING"
)
