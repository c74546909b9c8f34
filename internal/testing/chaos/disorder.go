package main

import (
	"os"
	"strconv"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// disorder is where the server has said that it left a burst out of order.
type disorder struct {
	session        string
	after, through place
}

// covers reports whether an event at p may be out of order because of it.
func (d disorder) covers(session string, p place) bool {
	return d.session == session && d.after.before(p) && p.epoch == d.through.epoch && p.seq <= d.through.seq+maxLeft
}

// maxLeft is how many events after the ones that were left out of order may be so, too: with each there may be others,
// which are durable and no part of the burst.
const maxLeft = session.LeftEvents + session.LeftEvents/8

// disorders reads them from a server's log.
func disorders(log []string) (out []disorder) {
	for _, line := range log {
		_, rest, ok := strings.Cut(line, strconv.Quote(session.LeftOutOfOrder))
		if !ok {
			continue
		}
		values := map[string]string{}
		for _, field := range strings.Fields(rest) {
			key, value, _ := strings.Cut(field, "=")
			values[key] = value
		}
		number := func(key string) uint64 {
			n, _ := strconv.ParseUint(values[key], 10, 64) // what is no number covers nothing
			return n
		}
		epoch := number("epoch")
		out = append(out,
			disorder{values["session_id"], place{epoch, number("after_seq")}, place{epoch, number("through_seq")}})
	}
	return out
}

// excused reports whether the server has said that it did not put an event in its order.
func (k *checker) excused(c *conversation, p place) bool {
	for _, d := range k.disorders {
		if d.covers(c.id, p) {
			return true
		}
	}
	return false
}

// said is what the server's log says so far, line by line.
func (p *process) said() []string {
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		return nil // then nothing is excused
	}
	return strings.Split(string(text), "\n")
}
