// Package corpus is real traffic as test data: it records what goes over the
// connections to CLIs while tests run, and replays it through package translate.
//
// A Recorder stands between the bridge and any runtime.Runner and copies the
// bytes of both directions into files, a pair for each runtime. Replay reads
// them back, finds the message type of every value – params by their method,
// results by the method they answer, events by themselves – and demands that
// JSON → wire → JSON gives the same value again. It also tells what the typed
// fields could not hold, member by member: that is where the CLI has drifted
// away from its schemas or our description of it.
//
// The traffic holds texts of the CLI, so that it is never committed: .ci/e2e
// records it anew each time. A small sample with texts of our own is in
// testdata.
//
// Each place whose values only json_extra or unrecognized can hold must be in testdata/drift.txt with a reason.
// Otherwise the replay fails: the CLI has changed, and internal/gen/schemagen/overlay needs a row. Recordings have at
// most 256 MiB for a server.
package corpus
