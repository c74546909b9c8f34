// Package shim stands in for the Copilot CLI: it speaks the CLI's JSON-RPC to programs
// written for it, and carries everything over gRPC to a bridge, by the typed API.
//
// A JSON-RPC connection is a participant in each session that it has created or resumed
// (CallbackService.Attach, exact). What the stream says becomes notifications and requests
// on the connection, in the stream's order; what the program calls becomes the method of
// copilot.cli.v1 that stands for it (table in methods.go), and its reply is held back until
// the events up to the reply's position have been written. What the CLI does for a process
// as a whole (providers of files and of model responses, telemetry) is kept here and becomes
// part of the runtime profile of the sessions that come after it.
//
// Nothing is parsed that need not be: parameters, results and events go from JSON to wire
// form and back by bridge/translate.
package shim
