package bridge

import (
	"bytes"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/audit"
	"github.com/copilot-grpc/copilot-grpc/internal/caller"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// What a participant's stream refuses is in the audit log too, though the call goes on; what
// only fails is not.
func TestRefusedFramesAreAudited(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	log := audit.New(&text, func(err error) { t.Error(err) })
	r := newRig(t, fakecli.Script{}, func(c *Config) { c.Audit = log })
	r.create("s1")
	s := r.known(t.Context(), "s1")
	a := &Attachment{b: r.Bridge, s: s, p: &session.Participant{ID: "p1"}}
	ctx := caller.With(t.Context(), caller.Caller{Tenant: "guest", Name: "eve", Role: caller.Participant})
	for _, why := range []fault.Reason{fault.Forbidden, fault.InvalidField} {
		frame := a.failed(ctx, &bridgev1.AttachFailed{Subject: &bridgev1.AttachFailed_CommandId{CommandId: "c"}}, fault.New(why, "no"))
		if got, _ := fault.Failure(fault.New(why, "no")); frame.GetFailed().GetFailure().GetReason() != got.GetReason() {
			t.Errorf("the frame says %v", frame)
		}
	}
	log.Close()
	refused := 0
	for line := range strings.Lines(text.String()) {
		if !strings.Contains(line, `"call.refused"`) {
			continue
		}
		refused++
		for _, part := range []string{`"FORBIDDEN"`, `"eve"`, `"guest"`, `"s1"`, `"p1"`, "CallbackService/Attach"} {
			if !strings.Contains(line, part) {
				t.Errorf("%s has no %s", line, part)
			}
		}
	}
	if refused != 1 {
		t.Errorf("%d refusals are kept, want 1:\n%s", refused, text.String())
	}
}
