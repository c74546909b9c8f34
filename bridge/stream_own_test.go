package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// The frames of a single reader are built in reused memory; several readers share frames. Both forms have the
// same content.
func TestOwnFrames(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakecli.Script{})
	r.create("s1")
	r.ask("s1", strings.Repeat("hello ", 1000))
	caught := errors.New("caught up")
	read := func() (own int, frames string) {
		t.Helper()
		err := r.Events.Subscribe(t.Context(), &bridgev1.SubscribeRequest{Sessions: one("s1")}, func(sent frame.Frame) error {
			if m, ok := sent.Message.(*bridgev1.SubscribeResponse); ok {
				if m.GetCaughtUp() != nil {
					return caught
				}
				return nil
			}
			if sent.Own != nil {
				own++
				if &sent.Own.Bytes[0] != &sent.Wire[len(sent.Wire)-1][0] {
					t.Error("the last piece is not the frame's own")
				}
			}
			frames += fmt.Sprintf("%q\n", bytes.Join(sent.Wire, nil))
			return nil
		})
		if !errors.Is(err, caught) {
			t.Fatal(err)
		}
		return own, frames
	}
	own, alone := read()
	other := r.subscribe(&bridgev1.SubscribeRequest{Sessions: one("s1")})
	other.until("<caught_up>")
	shared, together := read()
	if own == 0 || shared != 0 {
		t.Errorf("%d frames of its own for one reader, %d for two", own, shared)
	}
	if alone != together {
		t.Error("the frames differ")
	}
}
