// Package shim replaces the Copilot CLI: it speaks the CLI's JSON-RPC to programs written for the CLI, and forwards
// all calls over gRPC to a bridge, by the typed API.
//
// A JSON-RPC connection is a participant in each session that it has created or resumed (CallbackService.Attach,
// exact). Frames of the stream become notifications and requests on the connection, in order. A call of the program
// becomes the corresponding method of copilot.cli.v1 (table in methods.go); its reply is held back until the events
// up to the reply's position have been written. State that the CLI has for a whole process (providers of files and of
// model responses, telemetry) is kept here and becomes part of the runtime profile of later sessions.
//
// The parts of a session that belong to a connection (tools, commands, canvases, handlers) go into the start of its
// stream, the rest into the configuration. A restarted bridge lacks secrets: the stream then begins with a resume that
// has only those. Frames are held back until the position of the reply to a create or resume is known, and written
// after it. Callbacks that the CLI sends as a JSON-RPC request go to the program in the stream's order. AHP hosts
// belong to the connection that started them; what the CLI calls about them comes to Hosts in a private bridge's
// process, without an rpc.
//
// A connection serves at most 512 requests at once, and 4,096 wait; further ones get an error.
//
// Data is parsed only if necessary: bridge/translate converts parameters, results and events between JSON and wire
// form.
package shim
