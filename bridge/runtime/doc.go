// Package runtime starts, watches and ends Copilot CLI processes.
//
// A Runner knows how to get a byte stream to a CLI: Spawner starts a child,
// Dialer connects to a server that runs already, InProcess calls a function.
// Start puts the JSON-RPC connection on top, shakes hands, checks versions and
// watches the result, a Runtime, until it ends. A Supervisor keeps one Runtime
// for each Profile in use and starts it anew when it dies.
//
// Whatever happens to a Runtime ends in Done, with an error whose reason says
// what it was: it exited, it hung and was killed, it broke the protocol, or
// somebody here asked it to stop.
package runtime
