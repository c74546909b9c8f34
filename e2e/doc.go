// Package e2e has the end-to-end tests: the real Copilot CLI behind the real gRPC
// server, driven with clients/go, with the offline model in the place of a model
// service. COPILOT_CLI_PATH names the CLI's executable.
//
// Most tests share one server and one CLI process, with a session, a scope of the
// offline model and a working directory of their own: newRig gives these. Tests that
// end processes, restart the server or look at the whole of it take newOwnRig.
//
// Whatever can be, is checked by an oracle outside the bridge: the model requests that
// the offline model captured, and the CLI's own record in events.jsonl.
package e2e
