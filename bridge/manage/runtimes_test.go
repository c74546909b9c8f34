package manage_test

import (
	"testing"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// Journals are durable with a directory only.
func TestDurableJournalIsACapability(t *testing.T) {
	t.Parallel()
	for want, r := range map[bool]*bridgetest.Bridge{
		false: bridgetest.New(t, fakecli.Script{}), true: bridgetest.New(t, fakecli.Script{}, bridgetest.Stored),
	} {
		info, err := r.Runtimes.GetServerInfo(t.Context(), &bridgev1.GetServerInfoRequest{})
		if err != nil || info.GetCapabilities().GetDurableJournal() != want {
			t.Errorf("durable: %v, %v, want %v", info.GetCapabilities(), err, want)
		}
	}
}
