// Package shim replaces the Copilot CLI: it speaks the CLI's JSON-RPC to programs written for the CLI, and forwards
// all calls over gRPC to a bridge, by the typed API.
//
// A JSON-RPC connection is a participant in each session that it has created or resumed (CallbackService.Attach,
// exact). Frames of the stream become notifications and requests on the connection, in order. A call of the program
// becomes the corresponding method of copilot.cli.v1 (table in methods.go); its reply is held back until the events
// up to the reply's position have been written. State that the CLI has for a whole process (providers of files and of
// model responses, telemetry) is kept here and becomes part of the runtime profile of later sessions.
//
// Data is parsed only if necessary: bridge/translate converts parameters, results and events between JSON and wire
// form.
package shim
