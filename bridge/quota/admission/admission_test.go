package admission_test

import (
	"errors"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// Each limit counts what other servers use.
func TestLimitsCountOtherServers(t *testing.T) {
	t.Parallel()
	create := func(r *bridgetest.Bridge) error {
		_, err := r.Sessions.CreateSession(t.Context(), &bridgev1.CreateSessionRequest{SessionId: "s"})
		return err
	}
	send := func(r *bridgetest.Bridge) error {
		if err := create(r); err != nil {
			return err
		}
		_, err := r.Turns.Send(t.Context(),
			&bridgev1.SendRequest{SessionId: "s", Prompt: &bridgev1.Prompt{Text: "hello"}})
		return err
	}
	for name, test := range map[string]struct {
		limits quota.Limits
		others quota.Use
		call   func(*bridgetest.Bridge) error
	}{
		"sessions":      {quota.Limits{Sessions: 3}, quota.Use{Sessions: 3}, create},
		"turns":         {quota.Limits{Turns: 2}, quota.Use{Turns: 2}, send},
		"journal_bytes": {quota.Limits{JournalBytes: 1 << 20}, quota.Use{JournalBytes: 1 << 20}, send},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var used quota.Use
			r := bridgetest.New(t, fakecli.Script{}, func(c *bridgetest.Options) {
				c.Limits = func() quota.Limits { return test.limits }
				c.Elsewhere = func(string) (own, all quota.Use) { return used, used }
			})
			used = test.others
			err := test.call(r)
			if f, ok := errors.AsType[*fault.Error](err); !ok || f.Metadata["limit"] != name {
				t.Errorf("with %+v elsewhere: %v", used, err)
			}
			used = quota.Use{}
			if r = bridgetest.New(t, fakecli.Script{}, func(c *bridgetest.Options) {
				c.Limits = func() quota.Limits { return test.limits }
			}); test.call(r) != nil {
				t.Error("a server that is alone is limited, too")
			}
			if uses := r.Uses()[""]; uses.Sessions != 1 || uses.LoadedSessions != 1 || uses.Runtimes != 1 {
				t.Errorf("it uses %+v", uses)
			}
		})
	}
}
