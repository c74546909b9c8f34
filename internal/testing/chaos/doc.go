// Package chaos breaks things: it plays a schedule of calls and faults, drawn from a seed,
// against the whole server, and then compares what callers were told with what the CLI
// says it did.
//
// A schedule has some sessions, callers with connections of their own, readers of the
// sessions' streams, some of them slow, participants with tools, and at least so many
// steps. A step is a call, a change of who listens, or a fault: a runtime is killed, or
// goes deaf, or speaks nonsense; a connection breaks; the bridge is shut down, drained,
// killed, or loses the machine's power. At the end the faults stop, everything comes to
// rest, and the invariants are checked (check.go) against an oracle outside the bridge:
// the fake CLI's log of what it emitted and its history on disk, or the real one's
// events.jsonl.
//
// There are three forms of a schedule. In Memory the server and a fake CLI run in this
// process, on a disk that can lose power. In Process the server is a process of its own,
// which is really killed, and so are its fake CLIs. In Real they are the real CLI, with an
// offline model.
//
// The order of steps and all that is random in them follow from the seed. What the
// scheduler of the machine makes of it does not: a seed that failed once may have to run
// several times to fail again. What happened is in the report.
package chaos
