// Command chaos breaks things: it plays a schedule of calls and faults, drawn from a seed,
// against the whole server, and then compares what callers were told with what the CLI
// says it did.
//
// A schedule has some sessions, callers with connections of their own, readers of the
// sessions' streams, some of them slow, participants with tools, and at least so many
// steps. A step is a call, a change of who listens, or a fault: a runtime is killed or
// goes deaf; a connection breaks; the bridge is drained or killed. The fake CLI also ends or
// speaks nonsense of its own accord. At the end the faults stop, everything comes to
// rest, and the invariants are checked (check.go) against an oracle outside the bridge:
// the fake CLI's log of what it emitted and its history on disk, or the real one's
// events.jsonl.
//
// The server and the CLIs are processes. The CLI is a fake, or the real one with an offline
// model. Package sim runs a session in one process; the tests of bridge/journal and bridge/store
// cover the loss of power.
//
// What holds at the end:
//
//   - The journal has the CLI's history, byte for byte and in its order, and no other event.
//   - Each reader received each durable event of its range once, a Gap for each missing range,
//     and all events in the CLI's order, except in bursts that the server's log says were
//     left out of order, which the summary counts. No position was used twice.
//   - A prompt was sent at most once, however often its request was repeated, and exactly once
//     if a call reported success. A callback was answered at most once in each CLI process.
//   - Every call has ended, none with an internal error. The server exited with 0 after each
//     SIGTERM. No process of the CLI is left.
//
// The real CLI writes some events later than it sends them. An event may be earlier in the
// journal than in events.jsonl if its timestamp says that it happened earlier, or in the same
// millisecond; a session.resume and its session.warning are exempt. Other deviations from the
// order of the history must be in the recording of the CLI's output.
//
// The order of steps and all that is random in them follow from the seed. What the
// scheduler of the machine makes of it does not: a seed that failed once may have to run
// several times to fail again. What happened is in the report.
package main
