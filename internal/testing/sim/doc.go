// Package sim runs a session of the bridge against a model of the CLI, thousands of times a minute, and compares what
// callers are told with what the model did.
//
// The session is the real one, with its connection to the CLI; the CLI process, its disk, the callers and the clock are
// of this package. A run is a list of small steps made from a seed: a caller sends, aborts or answers, the CLI does one of
// the things that it could do next, it is killed, the bridge ends and begins again, or time goes by. The bridge comes to
// rest after each. In the end everything must come to an end, and then:
//
//   - Each prompt has one outcome: that of its own turn, with its text. Without a kill it is exactly the model's.
//   - What a reader has got once is in each later epoch, too.
//   - The agent gets a prompt at most once, and after those that had been accepted when it was sent. One that is said
//     to be lost is not in the history.
//   - The session is idle, no prompt is left in the outbox or on its disk, and no event is in the journal twice.
//   - A change of the state that the bridge stores is followed by a request to store it.
//   - A reader is told of the end of each turn that it has seen begin, once, before the next begins, and of no other. Without the end
//     of a process these are the turns of the agent, each with its outcome, and callers are told of the same ones (see turns.go).
//   - The reader has all events of the record of the process that has the session, in the order of the record, except those that the
//     CLI writes down later than it tells of them. The outcome of a turn has its place among them (see record.go).
//   - Who watches the session is told when a turn begins or ends, and when the session is disconnected or deleted (see watchers.go).
//
// The journal begins a new epoch only if the record of the process that loads the session contradicts what readers have got: it
// lacks one of their messages, which no earlier load has found to be missing, or has an event before those that they have (see epochs.go).
//
// When neither the process nor the bridge has anything to do, no caller waits, no turn is shown and the outbox is
// empty: nobody has to wait for a time limit (see quiet.go). A message that a caller or an abort has removed is not
// given to the agent again, if the caller was told of it or the record has the abort, and no message is that the record
// has. The answer to a message is behind it. An abort has no process load a session that has nothing to end, and no
// process is given a token that it has. Once the state is saved of a session that has come to rest, no process of the
// bridge tells of a turn that is lost. The disk of the outbox has what the memory has, once it has worked for a while.
//
// Some messages have other forms (see messages.go): one call sends several, which one turn takes; they are too large to be stored
// together; they have headers that are secret, or that take the place of the provider's for one turn. Each time that the agent gets
// one it is whole, and no secret is on the disk. A message that is acknowledged is stored, or its caller learns that it is not. A
// caller who is told that a message is lost is told why, and the run has had that reason (see lost.go). Callers whose process of the bridge
// ended before the reply ask again by the id of their request. The bridge may also shut down; then the disk has no message whose turn
// has ended. Callers remove messages from the CLI's queue.
//
// Of callbacks (tool calls, permissions and questions) it checks:
//
//   - Each ends once, after callers were told of it, and for a reason that the run has: an answer, its deadline, no
//     handler, abstention, an abort, a kill.
//   - The CLI receives a default answer only after the deadline, abstention, without a handler or without room.
//   - An answer that is said to be accepted has reached a CLI process, and there is one for each time that the CLI asks.
//   - As many places are taken as callbacks are pending. When the CLI has done all that it can, it waits for exactly
//     those that the session shows.
//   - Each request of a living process has one reply.
//
// Of a hook it checks that its handlers are asked one after the other, each with what those before it have changed, that a refusal
// ends the chain, and that the CLI receives what they have said in all.
//
// A burst (see burst.go) is sent in other orders than that in which it has happened (see pieces.go), by a clock of the CLI that may be
// set forward, with second copies, and in both orders of the members of an event. The reader gets each event once. It gets them in the
// order in which they happened, and none later than those before it allow, unless the CLI pauses for longer than the bridge waits, or
// more comes early than the bridge holds back: then it gets at once what there is. An event that has no time in the CLI's form, and one
// outside of a burst, is never held back.
//
// The bridge unloads the session at times, and callers change its configuration: it is never unloaded while it works, and the
// process that has it has the configuration that was accepted last. The disk of the outbox may fail for a while, that of
// the journal may also fill up or hang: then callers and readers notice nothing, unless the bridge ends. In the end the disk has
// what readers have got.
//
// Callers set things in the session (see settings.go): tools, the model, calls that the bridge repeats, labels and interests. In the
// end the process that has the session has what was accepted last, and once. Callers are shown the session as it
// is (see snapshot.go).
//
// A session may use a provider with a key, or a token (see provider.go). Callers change both. What the bridge saves has no secret. A process
// of the bridge may begin without what is saved apart: then a caller gives the key again.
//
// Callers disconnect the session, which others use, and open it again. Its turn and its callbacks end then, nothing that it had to do
// is done later, and no participant has a place.
//
// Callers shut the session down (see shutdown.go): its work has ended then, also what an earlier process has left, and it stays open.
//
// Callers cut the history at a message (see rewind.go), and other programs change it while no process of the bridge has the session
// (see other.go). A reader gets the event of the cut, or a gap, and behind that all messages of the history in its order. A message
// that was cut after its turn had ended is neither given to the agent again nor reported as lost, and no turn is continued that was cut.
//
// A caller deletes the session (see delete.go). Then nothing is left: no turn, callback, place or prompt, the bridge calls the CLI for
// it only to end questions that it has begun to ask, and whoever uses it gets SESSION_NOT_FOUND. The CLI may refuse. Both processes may end
// amid the deletion: then the session is as it was, or a caller can delete it once more.
//
// The model may never answer, and a tool may take longer than a turn may be silent (see stall.go). The bridge gives the turn up in the
// first case alone, and not before its time limit.
//
// Another server continues the session (see handover.go), and callers do what needs it to be at rest: then nothing is left to do, and
// no process has it; nobody is told that the session is busy while it has nothing to do. In the end it can leave. The reader goes, and comes back by its position. A session whose process ends is to be
// loaded again at once if it is used or has something to do, and else not. One that is unloaded and that nobody needs stays so.
//
// The CLI may hang, for up to the time after which the bridge kills it.
//
// Participants leave, lose their connections and come back within their grace time or behind it. In the end the process that
// has the session knows the tools of those that are there, and no others, and what else they handle.
//
// Callers answer the agent's requests to a model (see models.go): the head of a response comes first and once, and nothing behind its
// end. The first who answers, or gives a part, gets the pieces of the request, in order and all; the parts of others are refused. Each
// caller is told what has become of its part. If nobody gives the response, or its owner leaves, loses the connection or is silent, the
// bridge ends it with its status, and not otherwise: the agent does not wait for longer.
//
// Participants may declare commands and canvases, for which each has a connection of its own (see satellites.go), and change what they
// bring (see changes.go). A caller runs a command, which asks its participant;
// while it waits, the process does not begin a resume, and what comes behind one waits for that. A caller of
// WatchPending may handle callbacks, too (see watching.go). After each step a callback is offered to all who handle it.
//
// Callers go at any step: the contexts of their calls end. A message whose sender has gone with an error is not in the
// conversation.
//
// Both processes may end at any step, also amid work of the bridge (see fuse): when it is about to write to the CLI, or has
// written; before, within and after each write to a disk; when it has read, or told a caller something. A CLI process that
// is killed so is noticed at once or some milliseconds later, while the bridge goes on.
//
// When the bridge ends, the next process has what was stored by then: the state as it was saved last, the journal and the
// outbox. Callers ask again for the prompts that were acknowledged, and participants come back. A reader reads what the
// session shows as soon as it does, and comes back by its position: it gets each durable event once, at one position, or a
// gap, and what it has read is not lost. It is told of each request and end of a callback and of each lost message, as callers are.
//
// Equal runs behave alike, so that a seed that fails fails again: time is virtual, random numbers have a seed, and the goroutines
// of a run take turns on one processor (see TestMain). TestRepeat compares runs to the last byte that the bridge writes.
//
// Some runs are those of a replica of a cluster (see lease.go and shared.go). Its storage is remote, with terms, and the next process
// is on another machine: it restores the CLI's record as that was saved last, and completes it by the log. At any step another
// replica may take the session. From then on the storage refuses the state, the prompts and, then or some steps later, the events of
// the earlier owner, which does not know it yet, and goes on with its CLI process for a while: what that does then is of no effect. It
// tells callers nothing that the next owner does not know: of a prompt, an outcome, an answer to a tool call or permission, an abort,
// a cut, a configuration, the end of the session's use. Readers get only what is stored. The session also moves when it is at rest,
// while callers go on: nobody loses anything then, and who comes meanwhile is told to try again. The other machine may be unable
// to take it, or one of both may end at any point.
//
// The storage of a cluster, or a part of it (the log, the outbox or the states), may fail, make changes whose answers are lost, or hang
// (see volume.go), for one change or until it works again, and replicas may end or lose their lease meanwhile. Then callers wait, or are
// told SESSION_UNAVAILABLE; they are told nothing that the next owner would not know.
//
// A quarter of the sessions ask that the agent is told to continue a turn that was lost with its process. Then it is told
// only if the record ends within a turn, before it gets any other message, at most three times in a row, and not once
// a caller has called Abort. In the end, when a caller has loaded the session, no turn is left interrupted, unless processes
// ended again and again, or one ended before it had written down a message that the agent had taken up or the end of its turn.
//
// # What the model does
//
// It does what was measured of CLI 1.0.102, and no more: of hooks only preToolUse. The tests of package recorded play scenarios on the
// real CLI, and Accept looks for a run of the model that says the same. A fault of a run that the real CLI cannot make is a fault of the model.
//
//   - The events of a sub-agent come within the turn, and the record has them. They begin and end nothing.
//   - It works on requests at the same time: replies may come in another order than the requests, and before or behind
//     the events that follow from them. So may the reply to a create or resume and the event of it.
//   - session.abort emits abort at once and removes the messages that wait, then the turn ends, then comes the reply.
//   - Between the end of a turn and session.idle the agent takes up what has come meanwhile, and then there is no
//     session.idle. Behind assistant.idle such a message is delivered as "idle", before it as "queued".
//   - A message that steers is taken up when the next request to the model begins. One that came during the last request
//     of a turn begins a turn of its own, ahead of the queue.
//   - An error comes behind the end of its turn.
//   - The messages of one session.sendMessages are taken up together, with an event for each, and have one turn. Its reply has
//     all of their ids.
//   - session.queue.removeMostRecent removes the message that came last of those that wait, without an event that names it.
//   - A turn that begins has the provider's headers of the configuration that the process got last.
//   - The tool calls of one message go on independently: a permission, then the caller's tool; the event of an end comes
//     before the reply to the answer, and the end of the call behind it.
//   - An abort tells the ends of permissions and tools, and not those of questions. Its own event is before or behind them in the
//     record.
//   - A permission that is refused without feedback for the agent ends the turn behind its calls: abort comes behind the end of the
//     step, the messages that wait are removed, and session.idle does not say that it was aborted. With feedback the turn goes on. So it
//     does in a process that has taken the call over.
//   - A process that resumes the session takes over the requests that the record leaves open, and says of other calls
//     that they were interrupted. When the last of them ends, the agent goes on in an interaction of its own. A call whose
//     request has an end in the record and that has none itself keeps the agent at work until an abort. The abort of
//     taken-over calls tells no ends.
//   - A process that resumes the session ends a call whose permission was refused, and goes on with the turn.
//   - A process that resumes the session without going on with what is open in the record ends all these calls when the agent
//     takes up the next message, before that. A message in the record does not end them: only their own ends, the end of their
//     step and an abort do.
//   - A process that has only resumed the session writes nothing, also when it destroys the session or its input ends. The next
//     one can go on with the calls. The events of the begin and the end come into the record with others.
//   - It waits for the reply to a hook also when the turn has been aborted.
//   - The second copy of an ephemeral event may come very late. In a burst, events from memory and new ones come by turns.
//   - A process that destroys a session ends its turn without an event, and forgets the messages that wait.
//   - A resume of a session that the process has says whether the agent has something to do, and leaves what it lacks as it is. A refused one changes nothing.
//   - It waits for a model's response before it goes on, takes the parts of one in order, and accepts none behind its end. An abort
//     tells that the response is not needed any more. The end of the session's work in the process tells nothing.
//   - session.history.rewind is refused with "session-busy" until session.idle was sent, unless a message has come that the agent
//     has not taken up: then either comes first. session.history.truncate is never refused: a turn goes on, and the record has its
//     later events without its message. Both cut the record at the message before they send session.snapshot_rewind, which is
//     ephemeral and has upToEventId and eventsRemoved, and then reply. A message that is not in the history any more is refused.
//     Messages that wait stay. Behind a cut at the first message a process can resume the session.
//   - A truncation while tools are called is not modelled: the lists of requests do not have those whose events were cut, and
//     the CLI waits for their answers all the same. Nor is a cut in a record of several files, which was not measured.
//   - session.delete ends a session without events, also a busy one, and removes its files, and then replies. It refuses with
//     "Session file not found" if there is nothing to remove. If it cannot write or remove the files, it has ended the session
//     nevertheless, and the record stays. A request that came before the next resume is refused.
//   - session.shutdown ends the work of a session without telling the ends, and completes the record. Until the session is destroyed,
//     messages are accepted and ignored.
//   - Its record may have several files: session.getMessages has the newest one, session.eventLog.read has pages of all.
//   - The history is written some time after its events, and before session.idle. A session without a message has none:
//     no other process can resume it.
//   - At the end of its input a process shuts the session down. It may work on what it has received before that; then a
//     session without a message has a history, too. A message that the agent was about to take up is lost, or fails, or
//     comes behind session.shutdown.
package sim
