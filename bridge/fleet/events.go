package fleet

import (
	"bytes"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
)

// burst has the journals to which the events of a burst, which the connection read in one piece, go: each journal hands
// them on in one piece. Only the connection's reader uses it.
type burst struct {
	names    event.Names
	journals []*journal.Journal // of this burst
	previous []*journal.Journal // of the previous burst
	cameAt   time.Time          // when this burst began; zero between bursts
}

// add gives a session an event of the burst.
func (b *burst) add(s *session.Session, e *translate.EventHead) {
	if j := s.Journal(); j.BeginBatch() {
		b.journals = append(b.journals, j)
	}
	if b.cameAt.IsZero() {
		b.cameAt = time.Now()
	}
	s.Ingest(event.Record(*e, bytes.Clone(e.Raw), b.names), b.cameAt)
}

// end ends a burst.
func (b *burst) end() {
	for _, j := range b.journals {
		j.EndBatch()
	}
	clear(b.previous)
	b.previous, b.journals, b.cameAt = b.journals, b.previous[:0], time.Time{}
}

// event takes a session.event notification.
func (rt *Runtime) event(body []byte) {
	frame, err := translate.ScanFrame(body)
	if err != nil || frame.Event.Raw == nil {
		rt.fleet.log.Warn("malformed event of the CLI", "runtime_id", rt.id, "bytes", len(body))
		return
	}
	if s := rt.session(frame.SessionID); s != nil {
		rt.burst.add(s, &frame.Event)
	}
}

// slowDisk is how long a disk may delay a runtime before that is logged.
const slowDisk = 5 * time.Second

// throttle waits for the disk of the journals that the last burst went to, if it has fallen behind: a CLI is read as
// fast as its events can be stored. Nothing that the disk waits for comes by this connection.
func (rt *Runtime) throttle(over <-chan struct{}) (waited bool) {
	previous := rt.burst.previous
	if len(previous) == 0 {
		return false
	}
	begin, process := time.Now(), rt.Process()
	if process == nil {
		return false
	}
	for _, j := range previous {
		waited = j.AwaitDisk(over, process.Exited()) || waited
	}
	if took := time.Since(begin); waited && took > slowDisk {
		rt.fleet.log.Warn("reading from a runtime waits for the disk", "runtime_id", rt.id, "waited", took)
	}
	return waited
}
