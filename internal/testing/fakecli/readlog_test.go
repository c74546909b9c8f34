package fakecli_test

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// Answers has what the CLI took, with times, and Accepted counts that for each process and load of the session.
func TestAnswers(t *testing.T) {
	t.Parallel()
	entry := func(at int, kind, method, id, body string) fakecli.Entry {
		return fakecli.Entry{Kind: kind, Type: method, ID: id, Body: json.RawMessage(body),
			Time: time.UnixMilli(int64(at)).UTC().Format("2006-01-02T15:04:05.000Z")}
	}
	const answer = `{"params":{"sessionId":"s","requestId":"q","result":"yes"}}`
	const method = "session.tools.handlePendingToolCall"
	log := []fakecli.Entry{
		entry(1, fakecli.EntryReceived, "connect", "1", `{}`),
		entry(2, fakecli.EntryReceived, method, "2", answer),
		entry(3, fakecli.EntryReply, method, "2", `{"success":true}`),
		entry(4, fakecli.EntryReceived, method, "3", answer),
		entry(5, fakecli.EntryReply, method, "3", `{"success":false}`),
		entry(6, fakecli.EntryReceived, "session.destroy", "4", `{"params":{"sessionId":"s"}}`),
		entry(7, fakecli.EntryReceived, method, "5", answer),
		entry(8, fakecli.EntryReply, method, "5", `{"success":true}`),
		entry(9, fakecli.EntryReceived, method, "6", answer),
		entry(10, fakecli.EntryReceived, "connect", "1", `{}`), // the process before has not replied
		entry(11, fakecli.EntryReply, method, "6", `{"success":true}`),
	}
	answers := fakecli.Answers(log)
	if len(answers) != 2 {
		t.Fatalf("there are %d answers, want 2", len(answers))
	}
	a := answers[1]
	if a.SessionID != "s" || a.RequestID != "q" || string(a.Params) != `{"sessionId":"s","requestId":"q","result":"yes"}` ||
		a.Life != 1 || a.Load != 1 || a.At.UnixMilli() != 7 || a.Until.UnixMilli() != 8 {
		t.Errorf("the second answer is %+v", a)
	}
	want := map[string]int{"q (life 1, load 0)": 1, "q (life 1, load 1)": 1}
	if got := fakecli.Accepted(log); !maps.Equal(got, want) {
		t.Errorf("accepted %v, want %v", got, want)
	}
}
