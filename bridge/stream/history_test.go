package stream

import (
	"encoding/base64"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestWiden(t *testing.T) {
	t.Parallel()
	gap := func(after, through uint64, reason bridgev1.GapReason) *bridgev1.Gap {
		return &bridgev1.Gap{After: &bridgev1.Position{Epoch: 1, Seq: after}, Through: &bridgev1.Position{Epoch: 1, Seq: through}, Reason: reason}
	}
	const (
		lost    = bridgev1.GapReason_GAP_REASON_EPHEMERAL_LOST
		trimmed = bridgev1.GapReason_GAP_REASON_TRIMMED
		ended   = bridgev1.GapReason_GAP_REASON_EPOCH_ENDED
	)
	for _, test := range []struct{ first, then, want *bridgev1.Gap }{
		{nil, gap(0, 3, lost), gap(0, 3, lost)},
		{gap(0, 3, trimmed), gap(3, 9, lost), gap(0, 9, trimmed)},
		{gap(0, 3, lost), gap(3, 9, trimmed), gap(0, 9, trimmed)},
		{gap(7, 0, ended), gap(0, 9, lost), gap(7, 9, ended)},
		{gap(0, 3, trimmed), gap(3, 0, ended), gap(3, 0, ended)},
	} {
		if got := widen(test.first, test.then); !proto.Equal(got, test.want) {
			t.Errorf("%v and %v are told as %v, not %v", test.first, test.then, got, test.want)
		}
	}
}

func TestPageTokens(t *testing.T) {
	t.Parallel()
	for _, p := range []journal.Position{{}, {Epoch: 1, Seq: 0}, {Epoch: 1 << 63, Seq: 1<<64 - 1}} {
		if got, err := parseToken(pageToken(p)); err != nil || got != p {
			t.Errorf("%v became %v, %v", p, got, err)
		}
	}
	tokenOf := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	good := pageToken(journal.Position{Epoch: 1, Seq: 1})
	for _, bad := range []string{
		"x", "%", pageToken(journal.Position{})[:2], "MS8", "LTEvMQ", tokenOf("1/1x"), tokenOf("1/1/1"), tokenOf("1/+1"),
		tokenOf(" 1/1"), tokenOf("01/1"), tokenOf("\u0661/1"), tokenOf("1/18446744073709551616"), good + "\n", good + "=",
		good[:2] + "\r\n" + good[2:],
	} {
		_, err := parseToken(bad)
		if f, ok := fields.AsFault(err); !ok || f.Reason != fault.InvalidField || f.Field != "page_token" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
