// Package position compares, writes and reads positions of sessions, and keeps the latest.
package position

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc/metadata"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// trailer is the trailer in which replies about a session carry a position.
const trailer = "copilot-position"

// Compare orders two positions of a session: negative when a comes before b,
// 0 when they are the same. Nil comes before all others.
func Compare(a, b *bridgev1.Position) int {
	switch {
	case a.GetEpoch() < b.GetEpoch():
		return -1
	case a.GetEpoch() > b.GetEpoch():
		return 1
	case a.GetSeq() < b.GetSeq():
		return -1
	case a.GetSeq() > b.GetSeq():
		return 1
	}
	return 0
}

// Format returns a position as text, for storing it; "0/0" for nil.
func Format(pos *bridgev1.Position) string {
	return fmt.Sprintf("%d/%d", pos.GetEpoch(), pos.GetSeq())
}

// Parse is the inverse of [Format].
func Parse(text string) (*bridgev1.Position, error) {
	epoch, seq, _ := strings.Cut(strings.TrimSpace(text), "/")
	e, err := strconv.ParseUint(epoch, 10, 64)
	if err == nil {
		var s uint64
		if s, err = strconv.ParseUint(seq, 10, 64); err == nil {
			return &bridgev1.Position{Epoch: e, Seq: s}, nil
		}
	}
	return nil, fmt.Errorf("copilot: %q is no position, such as 7/42", text)
}

// Progress is the latest position seen. It is safe for concurrent use.
type Progress struct {
	mu  sync.Mutex
	pos *bridgev1.Position
}

// Note takes a position, unless a later one is known.
func (g *Progress) Note(pos *bridgev1.Position) {
	if pos == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if Compare(pos, g.pos) > 0 {
		g.pos = &bridgev1.Position{Epoch: pos.GetEpoch(), Seq: pos.GetSeq()}
	}
}

// Last gives the position, which is not to be changed; nil if none was seen.
func (g *Progress) Last() *bridgev1.Position {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pos
}

// NoteTrailer takes the position that a reply carries, if it does.
func (g *Progress) NoteTrailer(md metadata.MD) {
	for _, text := range md.Get(trailer) {
		if pos, err := Parse(text); err == nil {
			g.Note(pos)
		}
	}
}
