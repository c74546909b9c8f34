// Package fakecli is a scripted stand-in for the Copilot CLI in headless mode:
// it speaks the real protocol (version 3, Content-Length frames) with the
// event order, ids and error texts measured on the real one, and misbehaves on
// demand. It has no model: a Script says what happens for each prompt.
//
// # Two forms
//
// In process, for unit tests and load:
//
//	cli := fakecli.New(fakecli.Options{Script: script})
//	defer cli.Close()
//	conn := rpcconn.New(cli.Connect(), rpcconn.Options{…})
//
// As an executable, internal/testing/fakecli/cmd/fakecopilot, for whatever starts a
// process: it takes the flags the real one is started with (--headless
// --no-auto-update --no-auto-login --stdio, --port N, --version) and reads
//
//   - FAKECOPILOT_SCRIPT: the Script as JSON, or the path of a file with it;
//   - FAKECOPILOT_ORACLE: a file to append the log to, one JSON object a line;
//   - COPILOT_HOME: where sessions are kept, so that another process can
//     resume them; COPILOT_CONNECTION_TOKEN: as the real one, TCP only.
//
// # Scripts
//
// A prompt is answered by the first Prompt whose Match is a part of it (each
// can be limited to a number of Times); without one, by a short text. A Prompt
// is a list of Turns, one per model call; a turn streams text, asks the client
// things, calls tools, fails, or misbehaves. For example
//
//	{"prompts": [{"match": "deploy", "turns": [
//	    {"text": "Calling.", "tools": [{"name": "deploy", "arguments": {"env": "prod"}}]},
//	    {"deltas": {"count": 1000, "size": 20, "rate": 200}}]}],
//	 "faults": [{"method": "ping", "after": 3, "kind": "hang"}]}
//
// Tools ask for permission when the session has requestPermission, are refused
// without it, and are answered by the client, like the real ones. Tools that no
// client declared are the CLI's own: they ask too, and then give their Output.
//
// # Oracle
//
// Everything received and emitted is logged in order (Log), with the ids of
// the events, so that a test can say exactly what must have arrived, and which
// second copies must not have.
//
// # What it leaves out
//
// Several connections share sessions as in the real one (events to all who
// joined, first answer wins, tools as a union), but flags are per session, not
// per connection. There is no eventLog cursor, MCP, canvas, plan mode,
// sub-agent or session file system; Script.Replies can give any method a fixed
// answer.
package fakecli
