package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"image"
	"image/png"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// noise is a picture of about so many bytes. One that CLI 1.0.102 cannot read makes its history
// unreadable to itself.
func noise(t *testing.T, size int) []byte {
	t.Helper()
	side := int(math.Sqrt(float64(size)/4)) + 1
	img := image.NewNRGBA(image.Rect(0, 0, side, side))
	values := rand.New(rand.NewPCG(1, uint64(size)))
	for i := range img.Pix {
		img.Pix[i] = byte(values.UintN(256))
	}
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// userSays counts the user's messages in a request that have a text.
func userSays(r *offlinemodel.Request, text string) (n int) {
	for _, m := range r.Messages {
		if m.Role == offlinemodel.RoleUser && strings.Contains(m.Text, text) {
			n++
		}
	}
	return n
}

// twice reports whether the model got a prompt in two of the user's messages.
func (s *killed) twice(text string) bool {
	return slices.ContainsFunc(s.Model.ModelRequests(),
		func(r offlinemodel.Request) bool { return userSays(&r, text) > 1 })
}

// history are the user's messages in the CLI's own record, which is written a little late.
func (s *killed) history() (out []string) {
	s.T.Helper()
	s.Eventually("the CLI's record", func() bool {
		text, err := os.ReadFile(filepath.Join(s.Root, "home", "session-state", s.id, "events.jsonl"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.T.Fatal(err)
		}
		out = nil
		for line := range strings.Lines(string(text)) {
			var e struct {
				Type, AgentID string
				Data          struct{ Content string }
			}
			if json.Unmarshal([]byte(line), &e) == nil && e.Type == "user.message" && e.AgentID == "" {
				out = append(out, e.Data.Content)
			}
		}
		return slices.Contains(out, s.last)
	})
	return out
}

// read reads the session after a position until the barrier's turn has ended.
func (s *killed) read(after *bridgev1.Position) told {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.Ctx, harness.Patience)
	defer cancel()
	stream, err := s.Client.EventStreams().Subscribe(ctx,
		&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{
			SessionId: s.id, After: after, Filter: &bridgev1.EventFilter{IncludeLarge: true},
		}}})
	if err != nil {
		s.T.Fatal(err)
	}
	out := told{lost: map[string]bool{}, moved: map[string]string{}, has: map[string]int{}, ended: map[string]bool{}}
	var open []string
	for {
		f, err := stream.Recv()
		if err != nil {
			s.T.Fatalf("stream of %s: %v", s.id, err)
		}
		if end := f.GetTurnEnded(); end != nil {
			add(&out.ends, end.GetOutcome().GetStatus() == bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST)
			for _, id := range end.GetMessageIds() {
				out.lost[id] = end.GetFailure().GetReason() == bridgev1.ErrorReason_ERROR_REASON_SEND_UNCONFIRMED
			}
		}
		if m := f.GetMessageResent(); m != nil {
			for _, id := range m.GetMessageIds() {
				out.moved[id] = m.GetNewMessageIds()[len(m.GetNewMessageIds())-1]
			}
		}
		for _, e := range f.GetEvents().GetEvents() {
			switch ev := e.GetEvent(); ev.GetEventType() {
			case "user.message":
				out.has[ev.GetUserMessage().GetContent()]++
				open = append(open, ev.GetUserMessage().GetContent())
			case "session.idle":
				for _, text := range open {
					out.ended[text] = true
				}
				if slices.Contains(open, s.last) {
					return out
				}
				open = nil
			}
		}
	}
}
