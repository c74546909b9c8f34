package cli

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestTopOnce(t *testing.T) {
	t.Parallel()
	to := " --target " + server(t)
	expect(t, nil, "sessions create --id one"+to, result{exitOK, "one\n", ""})
	expect(t, nil, "sessions create --id closed"+to, result{exitOK, "closed\n", ""})
	expect(t, nil, "sessions disconnect closed"+to, result{exitOK, "closed\n", ""})
	expect(t, nil, "top --once"+to, result{exitOK, "copilot-grpc v1   sessions: 1   turns: 0   CLI processes: 1   memory: ", ""})
	expect(t, nil, "top --once"+to, result{exitOK, "\none      loaded  ", ""})
	expect(t, nil, "top"+to, result{exitUsage, "", "needs a terminal"})
	expect(t, nil, "top --once --interval 1ms"+to, result{exitUsage, "", "--interval is less than 100ms"})
	var got struct {
		Version            string
		Runtimes, Sessions []any
	}
	r := run(t, nil, "", strings.Fields("top --once -o json"+to)...)
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || got.Version != "v1" || len(got.Runtimes) != 1 ||
		len(got.Sessions) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// at is a snapshot of two sessions, of which b may have a turn.
func at(second int64, a, b uint64, running bool) *snapshot {
	session := func(id string, seq uint64, running bool) *copilot.SessionInfo {
		return &copilot.SessionInfo{ID: id, State: copilot.StateLoaded, Proto: &bridgev1.Session{
			State: bridgev1.SessionState_SESSION_STATE_LOADED, TurnRunning: running,
			Position: &bridgev1.Position{Epoch: 1, Seq: seq}}}
	}
	return &snapshot{at: time.Unix(second, 0), info: &bridgev1.GetServerInfoResponse{Version: "v1"},
		runtimes: []*bridgev1.RuntimeInfo{{RuntimeId: "rt", RssBytes: 2 << 20}},
		sessions: []*copilot.SessionInfo{session("a", a, false), session("b", b, running)}}
}

// The live screen shows rates, orders sessions by them, fits the terminal, and ends at a key or an error.
func TestTopScreen(t *testing.T) {
	t.Parallel()
	screen := &topScreen{shown: at(0, 10, 10, false)}
	screen.Update(tea.WindowSizeMsg{Width: 120, Height: 40})
	screen.Update(looked{snapshot: at(2, 11, 20, false)})
	text := screen.View().Content
	for _, want := range []string{"turns: 0", "memory: 2 MiB", "events/s: 5.5", "\nb        loaded       5.0", "\na        loaded       0.5"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Index(text, "\nb ") > strings.Index(text, "\na ") {
		t.Errorf("the order is wrong:\n%s", text)
	}
	screen.Update(looked{snapshot: at(4, 99, 20, true)})
	if text = screen.View().Content; strings.Index(text, "\nb ") > strings.Index(text, "\na ") || !strings.Contains(text, "turns: 1") {
		t.Errorf("a running turn is not first:\n%s", text)
	}
	screen.Update(tea.WindowSizeMsg{Width: 30, Height: 4})
	lines := strings.Split(screen.View().Content, "\n")
	if len(lines) != 4 || len([]rune(lines[0])) > 30 {
		t.Errorf("%q does not fit", lines)
	}
	if _, quit := screen.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); quit == nil {
		t.Error("q does not leave")
	}
	lost := status.Error(codes.Unavailable, "gone")
	screen.patience = time.Minute
	screen.Update(tea.WindowSizeMsg{Width: 120, Height: 40})
	_, goes := screen.Update(looked{err: lost, at: time.Unix(10, 0)})
	if text = screen.View().Content; goes == nil || screen.failed != nil || !strings.HasPrefix(text, "No server answers since ") ||
		!strings.Contains(text, "\nb ") {
		t.Errorf("without a server: %v\n%s", screen.failed, text)
	}
	screen.Update(looked{snapshot: at(12, 99, 20, true)})
	if text = screen.View().Content; strings.Contains(text, "No server") || strings.Contains(text, "events/s") {
		t.Errorf("the server is back:\n%s", text)
	}
	screen.Update(looked{err: lost, at: time.Unix(100, 0)})
	if _, quit := screen.Update(looked{err: lost, at: time.Unix(160, 0)}); quit == nil || !errors.Is(screen.failed, lost) {
		t.Error("a server that stays away does not end the screen")
	}
	failure := errors.New("gone")
	if _, quit := screen.Update(looked{err: failure}); quit == nil || !errors.Is(screen.failed, failure) {
		t.Error("an error does not end the screen")
	}
}
