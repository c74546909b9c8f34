package e2e

import (
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

var _ = errors.Is
var _ = codes.OK
var _ = copilot.FromError
var _ bridgev1.ErrorReason

// The mode that one method sets another tells, the reply stands among the events, and the
// bridge's own journal has the event.
func TestSurfaceMode(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	s := r.session(r.options())
	mode := cliv1.NewSessionModeServiceClient(r.conn())
	var trailer metadata.MD
	did(r, mode.Set, &cliv1.SessionModeServiceSetRequest{SessionId: s.ID(), Mode: cliv1.SessionMode_SESSION_MODE_PLAN}, grpc.Trailer(&trailer))
	check(t, len(trailer.Get("copilot-position")) == 1, "trailer is %v", trailer)
	s.waitFor("session.mode_changed")
	got := did(r, mode.Get, &cliv1.SessionModeServiceGetRequest{SessionId: s.ID()})
	t.Log(got)
	_, err := mode.Get(r.ctx, &cliv1.SessionModeServiceGetRequest{SessionId: "nope"})
	t.Log(status.Convert(err).Details())
	_, err = mode.Get(exactly(r.ctx), &cliv1.SessionModeServiceGetRequest{SessionId: "nope"})
	t.Log(status.Convert(err).Details())
	_, err = mode.Set(exactly(r.ctx), &cliv1.SessionModeServiceSetRequest{SessionId: s.ID(), JsonExtra: `{"mode":"bogus"}`})
	t.Log(status.Convert(err).Details())
}
