package view_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/clients/go/view"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// data are the cases that all libraries satisfy.
const data = "../../testdata/view/"

// viewCase is a case of cases.json. A pointer that is nil is not compared.
type viewCase struct {
	Name, Recording                     string
	Frames                              []json.RawMessage
	Items                               []string
	Running                             bool
	Title, Model, Intent                *string
	Outcome, Position                   *string
	Pending, Agents, Tools, Attachments *[]string
	Usage                               *view.Usage
	CaughtUp, GoingAway                 *bool
	Closed                              *int
}

func (c viewCase) frames(t *testing.T) (frames []*bridgev1.SubscribeResponse) {
	t.Helper()
	if c.Recording != "" {
		return recorded(t, c.Recording)
	}
	for _, text := range c.Frames {
		frame := new(bridgev1.SubscribeResponse)
		if err := protojson.Unmarshal(text, frame); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		frames = append(frames, frame)
	}
	return frames
}

func recorded(t *testing.T, name string) (frames []*bridgev1.SubscribeResponse) {
	t.Helper()
	text, err := os.ReadFile(data + name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.FieldsSeq(string(text)) {
		frame := new(bridgev1.SubscribeResponse)
		wire, err := base64.StdEncoding.DecodeString(line)
		if err == nil {
			err = proto.Unmarshal(wire, frame)
		}
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, frame)
	}
	return frames
}

// viewOf reduces frames, and fails a reducer that changes the view before.
func viewOf(t *testing.T, v view.View, frames []*bridgev1.SubscribeResponse) view.View {
	t.Helper()
	for _, frame := range frames {
		items, pending := slices.Clone(v.Items), slices.Clone(v.Pending)
		next := view.Reduce(v, frame)
		if !reflect.DeepEqual(v.Items, items) || !slices.Equal(v.Pending, pending) {
			t.Fatalf("the frame %v changed the view before it", frame)
		}
		v = next
	}
	return v
}

// line is an item in one line.
func line(item view.Item) string {
	stream := func(text string, streaming bool) string {
		if streaming {
			return text + "…"
		}
		return text
	}
	switch i := item.(type) {
	case view.User:
		if i.Lost {
			return "user " + i.AgentID + i.Text + " (lost)"
		}
		return "user " + i.AgentID + i.Text
	case view.Message:
		return stream("message "+i.AgentID+i.Text, i.Streaming)
	case view.Reasoning:
		return stream("reasoning "+i.AgentID+i.Text, i.Streaming)
	case view.Tool:
		result := i.Output
		if result == "" {
			result = i.Error
		}
		return strings.TrimSpace(fmt.Sprintf("tool %s(%s) %s %s", i.Name, i.ArgumentsJSON, i.State, result))
	case view.Notice:
		return string(i.Level) + " " + i.Text
	case view.Gap:
		return "gap up to " + copilot.FormatPosition(i.Position)
	case view.Restart:
		return "restart " + i.Cause
	}
	return fmt.Sprintf("%T", item)
}

func lines(v view.View) []string {
	texts := []string{}
	for _, item := range v.Items {
		texts = append(texts, line(item))
	}
	return texts
}

// agents are the sub-agents, in a line each.
func agents(v view.View) []string {
	texts := []string{}
	for _, a := range v.Agents {
		state := string(a.State)
		if a.Error != "" {
			state += " " + a.Error
		}
		texts = append(texts, fmt.Sprintf("%s %s %s %s %d %d %d", a.AgentID, a.ToolCallID, a.Name, state, a.ToolCalls,
			a.Tokens, a.Duration.Milliseconds()))
	}
	return texts
}

// attachments are the attachments of all prompts, in a line each.
func attachments(v view.View) []string {
	lines := []string{}
	for _, item := range v.Items {
		if user, ok := item.(view.User); ok {
			for _, one := range user.Attachments {
				lines = append(lines, one.Kind+" "+one.Name+" "+one.MIMEType)
			}
		}
	}
	return lines
}

// tools are the times and details of the tool calls, in a line each.
func tools(v view.View) []string {
	texts := []string{}
	for _, item := range v.Items {
		if i, ok := item.(view.Tool); ok {
			texts = append(texts, fmt.Sprintf("%s %d %d %s", i.ToolCallID, i.StartedAt.UnixMilli(),
				i.EndedAt.UnixMilli(), i.Detail))
		}
	}
	return texts
}

func equal[T any](t *testing.T, what string, got T, want *T) {
	t.Helper()
	if want != nil && !reflect.DeepEqual(got, *want) {
		t.Errorf("%s = %v, want %v", what, got, *want)
	}
}

func TestViewCases(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(data + "cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []viewCase
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 15 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			v := viewOf(t, view.View{}, c.frames(t))
			if got := lines(v); !slices.Equal(got, c.Items) {
				t.Errorf("items:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.Items, "\n"))
			}
			equal(t, "running", v.Turn.Running, &c.Running)
			equal(t, "title", v.Title, c.Title)
			equal(t, "model", v.Model, c.Model)
			equal(t, "intent", v.Turn.Intent, c.Intent)
			equal(t, "position", copilot.FormatPosition(v.Position), c.Position)
			equal(t, "usage", v.Usage, c.Usage)
			equal(t, "caught up", v.CaughtUp, c.CaughtUp)
			equal(t, "going away", v.GoingAway, c.GoingAway)
			equal(t, "closed", int(v.Closed), c.Closed)
			status := strings.TrimPrefix(v.Turn.Outcome.GetStatus().String(), "TURN_STATUS_")
			equal(t, "outcome", strings.ToLower(status), c.Outcome)
			pending := []string{}
			for _, cb := range v.Pending {
				pending = append(pending, cb.GetCallbackId())
			}
			equal(t, "pending", pending, c.Pending)
			equal(t, "agents", agents(v), c.Agents)
			equal(t, "tools", tools(v), c.Tools)
			equal(t, "attachments", attachments(v), c.Attachments)
		})
	}
}

// Frames that arrive twice, batches of other sizes and a new stream at any frame result in the same view.
func TestRecordingInOtherFrames(t *testing.T) {
	t.Parallel()
	frames := recorded(t, "turn.frames")
	want := viewOf(t, view.View{}, frames)
	var doubled, split []*bridgev1.SubscribeResponse
	for _, frame := range frames {
		doubled = append(doubled, frame, proto.CloneOf(frame))
		if frame.GetEvents() == nil {
			split = append(split, frame)
		}
		for _, event := range frame.GetEvents().GetEvents() {
			split = append(split, &bridgev1.SubscribeResponse{
				ResumeAfter: event.GetPosition(),
				Frame: &bridgev1.SubscribeResponse_Events{
					Events: &bridgev1.EventBatch{Events: []*bridgev1.Event{event}},
				},
			})
		}
	}
	for name, other := range map[string][]*bridgev1.SubscribeResponse{"doubled": doubled, "split": split} {
		got := viewOf(t, view.View{}, other)
		if !slices.Equal(lines(got), lines(want)) || got.Usage != want.Usage ||
			copilot.ComparePositions(got.Position, want.Position) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	keys := map[string]bool{}
	for _, item := range want.Items {
		keys[fmt.Sprintf("%T %s", item, view.KeyOf(item))] = true
	}
	if len(keys) != len(want.Items) {
		t.Errorf("keys: %v", keys)
	}
	for at := 1; at < len(frames); at++ {
		v := viewOf(t, view.View{}, frames[:at])
		v = viewOf(t, v, append([]*bridgev1.SubscribeResponse{frames[0]}, frames[at-1:]...))
		if !slices.Equal(lines(v), lines(want)) {
			t.Errorf("again at frame %d: %q", at, lines(v))
		}
	}
}

// While the permission of the recorded turn waits, the tool runs and the callback is pending.
func TestPendingPermission(t *testing.T) {
	t.Parallel()
	frames := recorded(t, "turn.frames")
	at := slices.IndexFunc(frames, func(f *bridgev1.SubscribeResponse) bool { return f.GetCallbackRequested() != nil })
	v := viewOf(t, view.View{}, frames[:at+1])
	last := line(v.Items[len(v.Items)-1])
	if len(v.Pending) != 1 || v.Pending[0].GetPermission() == nil || !v.Turn.Running ||
		!strings.HasPrefix(last, "tool get_weather(") || !strings.HasSuffix(last, "running") {
		t.Errorf("pending %v, last item %q", v.Pending, last)
	}
}
