// Package harness has what the end-to-end tests share: the real Copilot CLI behind the real gRPC server, driven with
// clients/go, with the offline model in place of a model service. COPILOT_CLI_PATH names the CLI's executable.
//
// Most tests of a package share one server and one CLI process, and have a session, a scope of the offline model and a
// working directory of their own: NewFixture gives these, and NewScripted the same with a model that follows rules in
// Go. Tests that end processes, restart the server or look at the whole of it take NewOwnFixture, NewOwnScripted or,
// for
// a server in a process of its own, NewDaemon.
//
// The tests compare with an oracle outside the bridge where one exists: the model requests that the offline model
// captured, and the CLI's own record in events.jsonl.
package harness
