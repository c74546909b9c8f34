package copilot

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/metadata"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// positionTrailer is the trailer in which replies about a session carry a position.
const positionTrailer = "copilot-position"

// ComparePositions orders two positions of a session: negative when a comes before b,
// 0 when they are the same. Nil comes before all others.
func ComparePositions(a, b *bridgev1.Position) int {
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

// progress is the latest position seen.
type progress struct {
	mu  sync.Mutex
	pos *bridgev1.Position
}

// note takes a position, unless a later one is known.
func (g *progress) note(pos *bridgev1.Position) {
	if pos == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if ComparePositions(pos, g.pos) > 0 {
		g.pos = &bridgev1.Position{Epoch: pos.GetEpoch(), Seq: pos.GetSeq()}
	}
}

// last gives the position, which is not to be changed; nil if none was seen.
func (g *progress) last() *bridgev1.Position {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pos
}

// noteTrailer takes the position that a reply carries, if it does.
func (g *progress) noteTrailer(md metadata.MD) {
	for _, text := range md.Get(positionTrailer) {
		var pos bridgev1.Position
		if _, err := fmt.Sscanf(text, "%d/%d", &pos.Epoch, &pos.Seq); err == nil {
			g.note(&pos)
		}
	}
}
