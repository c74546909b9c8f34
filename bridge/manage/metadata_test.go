package manage

import (
	"encoding/json"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// The history's metadata go over the bridge's description, where the history has them.
func TestMetadata(t *testing.T) {
	t.Parallel()
	known := &bridgev1.Session{
		SessionId: "s", State: bridgev1.SessionState_SESSION_STATE_LOADED, Name: "n", Summary: "old",
		CreateTime: timestamppb.New(time.Unix(1, 0)), Context: &bridgev1.SessionContext{WorkingDirectory: "/w"},
	}
	for name, test := range map[string]struct {
		history string
		known   *bridgev1.Session
		want    *bridgev1.Session
	}{
		"not in the bridge": {history: `{"sessionId":"s","summary":"new"}`, want: &bridgev1.Session{
			SessionId: "s", State: bridgev1.SessionState_SESSION_STATE_STORED, Summary: "new", Context: &bridgev1.SessionContext{},
		}},
		"in both": {history: `{"sessionId":"s","summary":"new","startTime":"1970-01-01T00:00:02Z","context":{"cwd":"/x"}}`, known: known, want: &bridgev1.Session{
			SessionId: "s", State: bridgev1.SessionState_SESSION_STATE_LOADED, Name: "n", Summary: "new",
			CreateTime: timestamppb.New(time.Unix(2, 0)), Context: &bridgev1.SessionContext{WorkingDirectory: "/x"},
		}},
		"an empty history": {history: `{"sessionId":"s"}`, known: known, want: known},
	} {
		var m metadata
		if err := json.Unmarshal([]byte(test.history), &m); err != nil {
			t.Fatal(err)
		}
		before, _ := proto.Clone(test.known).(*bridgev1.Session)
		if test.known == nil {
			before = nil
		}
		if got := m.onto(before); !proto.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
