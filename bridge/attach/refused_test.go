package attach

import (
	"bytes"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/audit"
)

// owned is a session of the host's own tenant.
type owned struct{}

func (owned) ID() string     { return "s1" }
func (owned) Tenant() string { return caller.HostTenant }

// The audit log has frames of a participant that the bridge refuses, although the stream continues. It does not
// have frames that only fail.
func TestRefusedFramesAreAudited(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	log := audit.New(&text, func(err error) { t.Error(err) })
	svc := New(Config{Audit: log})
	ctx := caller.With(t.Context(), caller.Caller{Tenant: "guest", Name: "eve", Role: caller.Participant})
	for _, why := range []fault.Reason{fault.Forbidden, fault.InvalidField} {
		frame := svc.failed(ctx, owned{}, "p1", &bridgev1.AttachFailed{Subject: &bridgev1.AttachFailed_CommandId{CommandId: "c"}}, fault.New(why, "no"))
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
