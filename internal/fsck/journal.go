package fsck

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
)

const (
	// maxIDs bounds the event ids of a session that are compared.
	maxIDs = 4 << 20
	// maxLosses bounds the losses of a mark: a server merges those above 64.
	maxLosses = 1024
	// eventFixed is the size of an event's flags and id.
	eventFixed = 1 + 16
)

// journal reads the journal of a session.
type journal struct {
	c        *checker
	session  *Session
	joint    []jointEvent // of this epoch
	ids      []eventID
	trimmed  uint64
	marked   bool
	reserved uint64
	// asked reports that the journal has a message of a user.
	asked bool
}

// eventID is the id of an event.
type eventID struct {
	id     [16]byte
	number uint64
}

func (j *journal) begin(epoch, base uint64) {
	j.session.Epoch, j.trimmed = epoch, base
	all := j.c.joint.events[digestOf(j.session.Key)]
	for _, e := range all {
		switch {
		case e.epoch == epoch:
			j.joint = append(j.joint, e)
		case e.epoch > epoch:
			j.c.Damage.add(j.session.Folder, "has epoch %d, but journals/ has event %d of epoch %d", epoch, e.number, e.epoch)
		}
	}
	if j.c.epochKnown && epoch > j.c.epoch {
		j.c.Damage.add(j.session.Folder, "has epoch %d, which is above %d, the content of epoch", epoch, j.c.epoch)
	}
}

func (j *journal) entry(l *log, s *segment, f frame) string {
	t := texts{nil, len(f.head) >= eventFixed}
	if t.ok {
		t.rest = f.head[eventFixed:]
	}
	kind, agent := t.text(), t.text()
	if !t.ok {
		return "is not an event"
	}
	j.asked = j.asked || string(kind) == "user.message" && len(agent) == 0
	j.add([16]byte(f.head[1:eventFixed]), f.number)
	j.compare(l, s, f)
	switch {
	case l.unsure:
	case !j.marked:
		return "has no mark before it"
	case f.number > j.reserved:
		return fmt.Sprintf("is above %d, the last reserved number", j.reserved)
	}
	return ""
}

// add counts an event.
func (j *journal) add(id [16]byte, number uint64) {
	if j.session.Events++; j.session.Events == 1 {
		j.session.First = number
	}
	j.session.Last = number
	if id != [16]byte{} && len(j.ids) < maxIDs {
		j.ids = append(j.ids, eventID{id, number})
	}
}

// compare compares an event with its copy in the joint log, if it has one.
func (j *journal) compare(l *log, s *segment, f frame) {
	for len(j.joint) > 0 && j.joint[0].number <= f.number {
		e := j.joint[0]
		j.joint = j.joint[1:]
		switch {
		case e.number < f.number && e.number > j.trimmed:
			l.damage("lacks event %d, which journals/ has", e.number)
		case e.number == f.number && e.sum != s.sum(0, f.at, f.end):
			l.damage("has another event %d than journals/", e.number)
		}
	}
}

func (j *journal) mark(_ *log, body []byte) string {
	const version = 1
	if len(body) < 2 || body[0] != version || body[1] > 1 {
		return "is not a mark of this version"
	}
	t := texts{body[2:], true}
	reserved := t.number()
	t.text() // boot
	count := t.number()
	var losses []Range
	for i := uint64(0); i < count && t.ok && i < maxLosses; i++ {
		if r := (Range{t.number() + 1, t.number()}); r.First <= r.Last {
			losses = append(losses, r)
		}
	}
	if !t.ok || count > maxLosses {
		return "is not a mark of this version"
	}
	j.marked, j.reserved, j.session.Closed, j.session.Losses = true, reserved, body[1] == 1, losses
	return ""
}

// finish adds the events that only the joint log has, and looks for ids that are there twice.
func (j *journal) finish(l *log) {
	j.session.Holes = l.holes
	for _, e := range j.joint {
		if e.number <= l.last {
			if e.number > j.trimmed {
				l.damage("lacks event %d, which journals/ has", e.number)
			}
			continue
		}
		if e.prev > l.last {
			l.damage("lacks events up to %d, behind which journals/ goes on", e.prev)
			j.session.Holes = append(j.session.Holes, Range{l.last + 1, e.prev})
		}
		j.add(e.id, e.number)
		l.last = e.number
		j.session.Closed = false
	}
	j.c.repeated(j.session.Folder, j.ids)
}

// repeated looks for ids that are there twice.
func (c *checker) repeated(place string, ids []eventID) {
	if len(ids) == maxIDs {
		c.Notes.add(place, "has more than %d events; only the ids of these were compared", maxIDs)
	}
	slices.SortFunc(ids, func(a, b eventID) int {
		return cmp.Or(bytes.Compare(a.id[:], b.id[:]), cmp.Compare(a.number, b.number))
	})
	for i := 1; i < len(ids); i++ {
		if ids[i].id == ids[i-1].id {
			c.Damage.add(place, "has event %x twice: %d and %d", ids[i].id, ids[i-1].number, ids[i].number)
		}
	}
}
