package runtime

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// testdata/data-d377de2 is what a server of commit d377de2 left when it was killed: its data
// directory, the CLI's record of the sessions, and in expect.json what callers had been told.
// It is made anew like this, with the program of that commit and the CLI that is pinned:
//
//	git worktree add /tmp/old d377de2
//	(cd /tmp/old && go build -o /tmp/old-server ./cmd/copilot-grpc)
//	OLD_SERVER=/tmp/old-server COPILOT_CLI_PATH=$(.ci/install-cli 1.0.102) go test ./e2e/runtime -run TestMakeOldData
const oldData = "testdata/data-d377de2"

// oldRoot is where the old server ran; it is in what it wrote.
const oldRoot = "/tmp/x"

// oldSession is what callers had been told of a session.
type oldSession struct {
	ID, State string
	Events    []string // the ids of the durable events, in order
	Positions []string
	Idles     []string // the positions of the ends of turns, which only the journal has
	Callback  string   // the id of the one that waits; empty if none does
	Shares    map[string]string
}

// oldRules are what the model says in these sessions.
var oldRules = []harness.Rule{
	harness.OnUser("work", harness.Call("works", nil)), harness.OnResult("works", harness.Say("{{tool_result}}")),
	harness.OnUser("ask", harness.Call("asks", nil)), harness.OnResult("asks", harness.Say("{{tool_result}}")),
	{When: harness.WhenUser("wait"), WaitFor: "never", Reply: harness.Steps(harness.Say("too late"))},
}

// oldProvider writes the file of the provider that the sessions name.
func oldProvider(st *harness.Scripted) string {
	st.T.Helper()
	text, err := json.Marshal(map[string]any{"type": "openai", "wireApi": "completions",
		"baseUrl": st.Config().GetProvider().GetBaseUrl(), "apiKey": harness.Planted})
	if err != nil {
		st.T.Fatal(err)
	}
	file := filepath.Join(st.T.TempDir(), "provider.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		st.T.Fatal(err)
	}
	return "ours=" + file
}

// openOld makes a session; key is whether its provider's key is the request's own.
func openOld(d *harness.Daemon, id string, key bool, tools ...*cliv1.ToolDefinition) {
	d.T.Helper()
	r := &bridgev1.CreateSessionRequest{
		SessionId: id, RequestId: "create " + id, ProviderRef: "ours", Handlers: &bridgev1.Handlers{Permission: true},
		Config: &cliv1.SessionConfig{
			Model: proto.String(offlinemodel.DefaultModel), Streaming: proto.Bool(true),
			SkipCustomInstructions: proto.Bool(true), Tools: tools,
			SystemMessage: &cliv1.SystemMessageConfig{Mode: cliv1.SystemMessageMode_SYSTEM_MESSAGE_MODE_REPLACE,
				Content: proto.String("You are a test.")},
			AvailableTools: &cliv1.StringList{Items: []string{"works", "asks"}},
		},
	}
	if key {
		r.ProviderRef, r.Config.Provider = "", d.Provider()
		r.Config.Provider.BaseUrl = "http://127.0.0.1:1/v1" // no turn is had in it any more
	}
	if _, err := d.Client.Sessions().CreateSession(d.Ctx, r); err != nil {
		d.T.Fatalf("create %s: %v", id, err)
	}
}

func sendOld(d *harness.Daemon, id, text string) {
	d.T.Helper()
	if _, err := d.Client.Sessions().Send(d.Ctx,
		&bridgev1.SendRequest{SessionId: id, RequestId: "send " + text,
			Prompt: &bridgev1.Prompt{Text: text}}); err != nil {
		d.T.Fatalf("send: %v", err)
	}
}

// TestMakeOldData makes the data of another version's server anew.
func TestMakeOldData(t *testing.T) {
	path := os.Getenv("OLD_SERVER")
	if path == "" {
		t.Skip("OLD_SERVER names no program to make the data with")
	}
	st := harness.NewScripted(t, oldRules...)
	if err := os.Mkdir(oldRoot, 0o700); err != nil {
		t.Fatal(err) // of another user
	}
	d := harness.StartDaemon(&harness.Daemon{Scripted: st, Root: oldRoot, Path: path,
		Flags: []string{"--provider", oldProvider(st)}})
	openOld(d, "rested", false)
	d.SayTo("rested", "hello")
	sendOld(d, "rested", "remember this")
	d.After("rested", nil, "session.idle")
	for tenant, access := range map[string]bridgev1.ShareAccess{"acme": bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE,
		"rival": bridgev1.ShareAccess_SHARE_ACCESS_PARTICIPATE} {
		if _, err := d.Client.Sessions().ShareSession(d.Ctx,
			&bridgev1.ShareSessionRequest{SessionId: "rested", Tenant: tenant, Access: access}); err != nil {
			t.Fatal(err)
		}
	}
	openOld(d, "working", false, toolNamed("works", true))
	sendOld(d, "working", "work")
	openOld(d, "asking", false, toolNamed("asks", false))
	sendOld(d, "asking", "ask")
	openOld(d, "left", false)
	d.SayTo("left", "hello")
	left := oldSession{ID: "left"}
	describeEvents(d, &left)
	if _, err := d.Client.Sessions().DisconnectSession(d.Ctx,
		&bridgev1.DisconnectSessionRequest{SessionId: "left", Force: true}); err != nil {
		t.Fatal(err)
	}
	openOld(d, "Keyed", true)
	openOld(d, "unused", false)
	openOld(d, "running", false)
	sendOld(d, "running", "wait")
	d.After("running", nil, "assistant.turn_start")
	d.Waiting("working")
	d.Waiting("asking")
	for _, id := range []string{"rested", "working", "asking", "running"} {
		d.Written(id)
	}
	sessions := describeOld(d)
	i := slices.IndexFunc(sessions, func(o oldSession) bool { return o.ID == left.ID })
	left.State, left.Shares = sessions[i].State, sessions[i].Shares
	sessions[i] = left
	d.Stop(syscall.SIGKILL)
	keepOld(d, oldData, sessions, "data", filepath.Join("home", "session-state"))
}

// describeOld is what callers can learn of all sessions.
func describeOld(d *harness.Daemon) (out []oldSession) {
	d.T.Helper()
	list, err := d.Client.Sessions().ListSessions(d.Ctx, &bridgev1.ListSessionsRequest{})
	if err != nil {
		d.T.Fatal(err)
	}
	for _, s := range list.GetSessions() {
		o := oldSession{ID: s.GetSessionId(), State: s.GetState().String(), Shares: map[string]string{}}
		for _, share := range s.GetShares() {
			o.Shares[share.GetTenant()] = share.GetAccess().String()
		}
		if o.State != bridgev1.SessionState_SESSION_STATE_STORED.String() {
			describeEvents(d, &o)
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b oldSession) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// describeEvents adds a session's events, and what it waits for.
func describeEvents(d *harness.Daemon, o *oldSession) {
	d.T.Helper()
	ids, at := d.Durable(o.ID)
	o.Events = ids
	for _, p := range at {
		o.Positions = append(o.Positions, fmt.Sprintf("%d/%d", p.GetEpoch(), p.GetSeq()))
	}
	page, err := d.Client.Sessions().ListEvents(d.Ctx,
		&bridgev1.ListEventsRequest{SessionId: o.ID, Filter: &bridgev1.EventFilter{Types: []string{"session.idle"}}})
	if err != nil {
		d.T.Fatal(err)
	}
	for _, e := range page.GetEvents() {
		o.Idles = append(o.Idles, fmt.Sprintf("%d/%d", e.GetPosition().GetEpoch(), e.GetPosition().GetSeq()))
	}
	pending, err := d.Client.Callbacks().ListPending(d.Ctx, &bridgev1.ListPendingRequest{SessionId: o.ID})
	if err != nil {
		d.T.Fatal(err)
	}
	for _, c := range pending.GetCallbacks() {
		o.Callback = c.GetCallbackId()
	}
}

// keepOld puts parts of what a killed server has left among the tests' data, in a folder with what callers had been told.
func keepOld(d *harness.Daemon, folder string, told any, parts ...string) {
	d.T.Helper()
	text, err := json.MarshalIndent(told, "", " ")
	if err != nil {
		d.T.Fatal(err)
	}
	if err := os.RemoveAll(folder); err != nil {
		d.T.Fatal(err)
	}
	for _, part := range parts {
		copyFolder(d.T, filepath.Join(d.Root, part), filepath.Join(folder, part))
	}
	err = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if err == nil && !e.IsDir() && (strings.HasPrefix(name, "inuse.") || strings.HasSuffix(name, "lock")) {
			err = os.Remove(path) // of processes that are gone
		}
		return err
	})
	if err != nil {
		d.T.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "expect.json"), append(text, '\n'), 0o600); err != nil {
		d.T.Fatal(err)
	}
}

// copyFolder copies a folder's files.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// copyOld copies a folder of keepOld to a new directory for a server. It reads what callers had been told to told.
func copyOld(t *testing.T, folder string, told any) (root string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "expect.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, told); err != nil {
		t.Fatal(err)
	}
	if root, err = os.MkdirTemp("", "old"); err != nil { // short: it is in a socket's path
		t.Fatal(err)
	}
	for _, part := range []string{"data", "home"} {
		copyFolder(t, filepath.Join(folder, part), filepath.Join(root, part))
	}
	return root
}

// TestOldData opens the data directory of an earlier version's server: every session is there
// in its state, with every event at its position and what was waited for, and can be used.
func TestOldData(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, oldRules...)
	if st.Before("1.0.102") {
		t.Skip("the sessions are those of CLI 1.0.102")
	}
	var want []oldSession
	root := copyOld(t, oldData, &want)
	d := harness.StartDaemon(&harness.Daemon{Scripted: st, Root: root, Flags: []string{"--provider", oldProvider(st)}})
	got := map[string]oldSession{}
	for _, o := range describeOld(d) {
		got[o.ID] = o
	}
	for _, w := range want {
		sameAsOld(d, w, got[w.ID])
	}
	if len(got) != len(want) {
		t.Errorf("there are %d sessions, and were %d", len(got), len(want))
	}
	i := slices.IndexFunc(want, func(o oldSession) bool { return o.ID == "left" })
	goOnWithOld(d, want[i])
}

// sameAsOld compares a session with what it was.
func sameAsOld(d *harness.Daemon, want, got oldSession) {
	d.T.Helper()
	// No runtime of the old server's is left, and one that asks something is loaded again.
	states := []string{want.State}
	if want.State == bridgev1.SessionState_SESSION_STATE_LOADED.String() {
		states = append(states, bridgev1.SessionState_SESSION_STATE_UNLOADED.String())
	}
	if want.ID == "Keyed" {
		states = []string{bridgev1.SessionState_SESSION_STATE_CREDENTIALS_NEEDED.String()}
	}
	if !slices.Contains(states, got.State) {
		d.T.Errorf("session %q is %q, want one of %q", want.ID, got.State, states)
	}
	if want.ID != "left" { // until it is resumed
		sameEvents(d, want, got)
	}
	if text, other := mustJSON(d.T, want.Shares), mustJSON(d.T, got.Shares); !bytes.Equal(text, other) {
		d.T.Errorf("session %q is shared with %s, and was with %s", want.ID, other, text)
	}
	if want.Callback != "" && d.Waiting(want.ID).GetCallbackId() != want.Callback {
		d.T.Errorf("session %q does not wait for %q", want.ID, want.Callback)
	}
}

// sameEvents compares a session's events with what they were.
func sameEvents(d *harness.Daemon, want, got oldSession) {
	d.T.Helper()
	id := want.ID
	begins := func(what string, want, got []string) {
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			d.T.Errorf("%s of %q begin with %v, want %v", what, id, got, want)
		}
	}
	begins("the events", want.Events, got.Events)
	begins("the positions", want.Positions, got.Positions)
	begins("the ends of turns", want.Idles, got.Idles)
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// answerOld answers what the old sessions wait for, and checks that the turn that was cut off has ended.
func answerOld(d *harness.Daemon) {
	d.T.Helper()
	answer, _ := copilot.AnswerTool("by a later version")
	resolve(d, "working", d.Waiting("working").GetCallbackId(), answer)
	resolve(d, "asking", d.Waiting("asking").GetCallbackId(),
		&bridgev1.Answer{Answer: &bridgev1.Answer_Permission{Permission: copilot.ApproveOnce()}})
	resolve(d, "asking", d.Waiting("asking").GetCallbackId(), answer)
	for _, id := range []string{"working", "asking"} {
		d.After(id, nil, "session.idle")
	}
	_, at := d.Durable("running")
	if end := turnEnd(d, "running", at[len(at)-1]); end.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
		d.T.Errorf("the turn that was cut off ended as %v", end)
	}
}

// goOnWithOld uses the sessions; left is the one that was disconnected.
func goOnWithOld(d *harness.Daemon, left oldSession) {
	d.T.Helper()
	answerOld(d)
	if _, err := d.Client.Sessions().ResumeSession(d.Ctx,
		&bridgev1.ResumeSessionRequest{SessionId: "left"}); err != nil {
		d.T.Errorf("resuming the session that was left: %v", err)
	}
	again := oldSession{ID: "left"}
	describeEvents(d, &again)
	sameEvents(d, left, again)
	for _, id := range []string{"rested", "unused", "left", "running"} {
		d.SayTo(id, "and on")
	}
}

// TestOldDataIsNeutral looks for what must not be in the repository.
func TestOldDataIsNeutral(t *testing.T) {
	t.Parallel()
	bad := []string{harness.Planted}
	for _, top := range []string{"home", "root", "work", "Users"} {
		bad = append(bad, `"/`+top, ": /"+top)
	}
	for _, folder := range []string{oldData, jointData} {
		for _, bad := range bad {
			if found := harness.SecretsIn(t, folder, bad); found != nil {
				t.Errorf("%q is in %v", bad, found)
			}
		}
	}
}
