// Package cluster plays seeded schedules of faults against three replicas and three NATS servers.
//
// Draw makes a schedule from a seed alone: replicas are killed, frozen for less or more than their lease, and drained;
// NATS servers are killed, frozen and stopped; links are cut and slow. Beside the faults, sessions
// are moved, and callers create sessions, send prompts, repeat them, read streams and answer tool calls, each call through
// a replica drawn at random. Then everything is healed, and Record.Check compares what the callers received with what
// each replica shows, with the messages in NATS, and with the fake CLIs' logs or the requests of the real CLIs to the
// offline model.
//
// What holds at the end:
//
//   - Each reader has each durable event once, at the position and in the order in which every replica lists it.
//   - The terms in NATS never go back in the log of a session, so that at most one owner appends.
//   - Each turn for which a caller waits has an outcome. No real CLI took two answers to one callback.
//   - Each session completes a turn, each call succeeds within 90 s, and a replica ends within 30 s of SIGTERM, with 0
//     unless a fault of NATS takes its lease meanwhile.
//
// An observer records the answer to each call about a session, with the times of the call and of the answer; the changes
// of the sessions' owners in NATS; and what the fake CLIs accepted. Porcupine checks that three histories are
// linearizable (Record.Histories):
//
//   - ownership: a session has one owner at a time, and each answer comes from its owner, which the header
//     copilot-owner-node names.
//   - requests: calls with one request id take effect once, and each answer equals the first one. A prompt is in the
//     conversation once at most, and exactly once if it was acknowledged and not reported as lost.
//   - claims: one answer to a callback is accepted, callers with another one are told that it is resolved, and the CLI has
//     the accepted answer once.
//
// A call without an answer, or with an error that says no more, may have taken effect at any later time, or never. A
// history that cannot be checked within a minute counts as a violation. A history that is not linearizable is written as
// text and as Porcupine's page, into the directory that CLUSTER_HISTORIES names.
//
// The replicas are processes with the program's command line; so are the NATS servers. The links and the offline model
// are in the test's process. The environment says what TestSchedules plays: CLUSTER_SCHEDULES (how many with the fake
// CLI, default none), CLUSTER_REAL (how many with the real CLI, which COPILOT_CLI_PATH names; default none) and
// CLUSTER_SEED (the first seed of both). A failure leaves the replicas' directories with their logs, and prints where.
//
// TestScale measures the same cluster without faults, but for the end of a replica: CLUSTER_SCALE says how many
// sessions it makes.
package cluster
