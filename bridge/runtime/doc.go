// Package runtime starts, monitors and ends Copilot CLI processes.
//
// A Runner provides a byte stream to a CLI: Spawner starts a child process, Dialer connects to a running server,
// InProcess calls a function. Start adds the JSON-RPC connection, performs the handshake, checks versions, and
// monitors the result, a Runtime, until it ends. A Supervisor manages one Runtime for each Profile in use and
// restarts it after failures.
//
// Every Runtime ends by closing Done. Its error has the reason: the process exited, it hung and was killed, it
// violated the protocol, or Stop was called.
//
// Each Runtime has one goroutine that supervises it and one that reads its health; each profile in use has a keeper
// goroutine of the Supervisor. Supervisor.mu guards all keepers. Stop ends them and waits.
package runtime
