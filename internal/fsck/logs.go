package fsck

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// maxJoint bounds the events of the joint log that are compared with the journals. The joint log has at most 128 MiB.
const maxJoint = 1 << 20

// keyDigest stands for the key of a session, which may be long.
type keyDigest [sha256.Size]byte

func digestOf(key string) keyDigest { return sha256.Sum256([]byte(key)) }

// joint are the events in journals/, by their session, in the order of the log.
type joint struct {
	events map[keyDigest][]jointEvent
	count  int
}

// jointEvent is an event in the joint log.
type jointEvent struct {
	epoch, prev, number uint64
	id                  [16]byte
	sum                 uint32 // CRC-32C of the event's body
}

// noMarks is the part of a reader for logs that have no marks.
type noMarks struct{}

func (noMarks) begin(uint64, uint64) {}

func (noMarks) mark(*log, []byte) string { return "is a mark, which this log has not" }

// jointLog reads journals/.
type jointLog struct {
	noMarks

	c *checker
}

func (j *jointLog) entry(l *log, s *segment, f frame) string {
	t := texts{f.head, true}
	name := t.text()
	key := digestOf(string(name))
	e := jointEvent{epoch: t.number(), prev: t.number(), number: t.number()}
	if e.epoch == 0 && t.ok && len(name) > 0 {
		return j.value(l, f, key, e.prev, f.at+int64(len(f.head)-len(t.rest)))
	}
	if !t.ok || len(name) == 0 || len(t.rest) < eventFixed {
		return "is not an event or a value of a session"
	}
	before := jointEvent{number: e.prev}
	if all := j.c.joint.events[key]; len(all) > 0 && all[len(all)-1].epoch == e.epoch {
		before = all[len(all)-1]
	}
	if e.number <= e.prev || e.prev < before.number {
		return fmt.Sprintf("has event %d behind event %d and event %d", e.number, e.prev, before.number)
	}
	copy(e.id[:], t.rest[1:])
	e.sum = s.sum(0, f.at+int64(len(f.head)-len(t.rest)), f.end)
	if j.c.joint.count++; j.c.joint.count > maxJoint {
		if j.c.joint.count == maxJoint+1 {
			j.c.Notes.add(l.file, "has more than %d events; only these were compared with the journals", maxJoint)
		}
		return ""
	}
	j.c.joint.events[key] = append(j.c.joint.events[key], e)
	return ""
}

// The kinds of values.
const (
	kindState  = 1
	kindOutbox = 2
	kindGone   = 3
)

// value takes a value of a session, whose body begins at an offset.
func (j *jointLog) value(l *log, f frame, key keyDigest, kind uint64, at int64) string {
	switch kind {
	case kindState:
		j.c.hasState(key)
	case kindOutbox:
		if len(j.c.outboxes) < maxNames {
			j.c.outboxes[key] = place{l.file, at, f.end}
		}
	case kindGone:
		delete(j.c.states, key)
		delete(j.c.outboxes, key)
	default:
		return fmt.Sprintf("has the value kind %d", kind)
	}
	return ""
}

// hasState notes that a log has a state of a session.
func (c *checker) hasState(key keyDigest) {
	if len(c.states) < maxNames {
		c.states[key] = true
	}
}

// statesLog reads states/, which earlier versions have.
type statesLog struct {
	noMarks

	c *checker
}

func (r *statesLog) entry(_ *log, _ *segment, f frame) string {
	t := texts{f.head, true}
	key := t.text()
	if !t.ok || len(key) == 0 {
		return "is not the state of a session"
	}
	r.c.hasState(digestOf(string(key)))
	return ""
}

// requestsLog reads requests/.
type requestsLog struct {
	noMarks

	c *checker
}

func (*requestsLog) entry(_ *log, _ *segment, f frame) string {
	const parts = 6
	body := f.head
	if len(body) > 0 && body[0] == '{' {
		return "" // the older format: JSON
	}
	if len(body) < 2 || body[0] != 1 {
		return "is not a request of this version"
	}
	_, n := binary.Varint(body[2:])
	t := texts{body[2+max(n, 0):], n > 0}
	for range parts {
		t.text()
	}
	// A body whose begin only is in memory may have its texts in the rest.
	if !t.ok && f.end-f.at == int64(len(f.head)) {
		return "is not a request of this version"
	}
	return ""
}
