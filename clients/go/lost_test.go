package copilot

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// sink is a stream that a function takes the frames of.
type sink struct {
	grpc.BidiStreamingClient[bridgev1.AttachRequest, bridgev1.AttachResponse]
	take func() error
}

func (s sink) Send(*bridgev1.AttachRequest) error { return s.take() }

// An answer goes out once on the next link, whether its link went down before, while or after it was sent there.
func TestAnswerOfALostLinkIsSentOnceMore(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ before, during, after bool }{
		"before": {before: true}, "during": {during: true}, "after": {after: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				links, sent := make(chan *link, 2), 0
				cs := &calls{ctx: ctx, log: slog.New(slog.DiscardHandler), byID: make(map[string]*call)}
				cs.live = func(context.Context) (*link, error) { return <-links, nil }
				broken, next := &link{down: make(chan struct{})}, &link{down: make(chan struct{})}
				lose := func(now bool) {
					if now {
						close(broken.down)
						cs.lost(broken)
					}
				}
				broken.stream = sink{take: func() error {
					lose(tc.during)
					return errors.New("broken")
				}}
				next.stream = sink{take: func() error {
					sent++
					return nil
				}}
				c := cs.newCall(&bridgev1.Callback{CallbackId: "1", SessionId: "s1"})
				links <- broken
				links <- next
				lose(tc.before)
				cs.deliver(c, answerError("an answer"))
				lose(tc.after)
				synctest.Wait()
				cs.lost(broken)
				synctest.Wait()
				if sent != 1 {
					t.Errorf("the answer was sent %d times on the next link", sent)
				}
				cs.drop(c, nil)
			})
		})
	}
}
