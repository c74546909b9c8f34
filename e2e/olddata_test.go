package e2e

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
//	OLD_SERVER=/tmp/old-server COPILOT_CLI_PATH=$(.ci/install-cli 1.0.102) go test ./e2e -run TestMakeOldData
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
var oldRules = []rule{
	onUser("work", call("works", nil)), onResult("works", say("{{tool_result}}")),
	onUser("ask", call("asks", nil)), onResult("asks", say("{{tool_result}}")),
	{When: whenUser("wait"), WaitFor: "never", Reply: steps(say("too late"))},
}

// oldProvider writes the file of the provider that the sessions name.
func oldProvider(st *stage) string {
	st.t.Helper()
	text, err := json.Marshal(map[string]any{"type": "openai", "wireApi": "completions", "baseUrl": st.config().GetProvider().GetBaseUrl(), "apiKey": planted})
	if err != nil {
		st.t.Fatal(err)
	}
	file := filepath.Join(st.t.TempDir(), "provider.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		st.t.Fatal(err)
	}
	return "ours=" + file
}

// openOld makes a session; key is whether its provider's key is the request's own.
func (d *daemon) openOld(id string, key bool, tools ...*cliv1.ToolDefinition) {
	d.t.Helper()
	r := &bridgev1.CreateSessionRequest{
		SessionId: id, RequestId: "create " + id, ProviderRef: "ours", Handlers: &bridgev1.Handlers{Permission: true},
		Config: &cliv1.SessionConfig{
			Model: proto.String(offlinemodel.DefaultModel), Streaming: proto.Bool(true), SkipCustomInstructions: proto.Bool(true), Tools: tools,
			SystemMessage:  &cliv1.SystemMessageConfig{Mode: cliv1.SystemMessageMode_SYSTEM_MESSAGE_MODE_REPLACE, Content: proto.String("You are a test.")},
			AvailableTools: &cliv1.StringList{Items: []string{"works", "asks"}},
		},
	}
	if key {
		r.ProviderRef, r.Config.Provider = "", d.provider()
		r.Config.Provider.BaseUrl = "http://127.0.0.1:1/v1" // no turn is had in it any more
	}
	if _, err := d.client.Sessions().CreateSession(d.ctx, r); err != nil {
		d.t.Fatalf("create %s: %v", id, err)
	}
}

func (d *daemon) sendOld(id, text string) {
	d.t.Helper()
	if _, err := d.client.Sessions().Send(d.ctx, &bridgev1.SendRequest{SessionId: id, RequestId: "send " + text, Prompt: &bridgev1.Prompt{Text: text}}); err != nil {
		d.t.Fatalf("send: %v", err)
	}
}

// TestMakeOldData makes the data of another version's server anew.
func TestMakeOldData(t *testing.T) {
	path := os.Getenv("OLD_SERVER")
	if path == "" {
		t.Skip("OLD_SERVER names no program to make the data with")
	}
	st := newStage(t, oldRules...)
	if err := os.Mkdir(oldRoot, 0o700); err != nil {
		t.Fatal(err) // of somebody else
	}
	d := startDaemon(&daemon{stage: st, root: oldRoot, path: path, flags: []string{"--provider", oldProvider(st)}})
	d.openOld("rested", false)
	d.sayTo("rested", "hello")
	d.sendOld("rested", "remember this")
	d.after("rested", nil, "session.idle")
	for tenant, access := range map[string]bridgev1.ShareAccess{"acme": bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE, "rival": bridgev1.ShareAccess_SHARE_ACCESS_PARTICIPATE} {
		if _, err := d.client.Sessions().ShareSession(d.ctx, &bridgev1.ShareSessionRequest{SessionId: "rested", Tenant: tenant, Access: access}); err != nil {
			t.Fatal(err)
		}
	}
	d.openOld("working", false, toolNamed("works", true))
	d.sendOld("working", "work")
	d.openOld("asking", false, toolNamed("asks", false))
	d.sendOld("asking", "ask")
	d.openOld("left", false)
	d.sayTo("left", "hello")
	left := oldSession{ID: "left"}
	d.describeEvents(&left)
	if _, err := d.client.Sessions().DisconnectSession(d.ctx, &bridgev1.DisconnectSessionRequest{SessionId: "left", Force: true}); err != nil {
		t.Fatal(err)
	}
	d.openOld("Keyed", true)
	d.openOld("unused", false)
	d.openOld("running", false)
	d.sendOld("running", "wait")
	d.after("running", nil, "assistant.turn_start")
	d.waiting("working")
	d.waiting("asking")
	for _, id := range []string{"rested", "working", "asking", "running"} {
		d.written(id)
	}
	sessions := d.describeOld()
	i := slices.IndexFunc(sessions, func(o oldSession) bool { return o.ID == left.ID })
	left.State, left.Shares = sessions[i].State, sessions[i].Shares
	sessions[i] = left
	d.stop(syscall.SIGKILL)
	d.keepOld(sessions)
}

// describeOld is what callers can learn of all sessions.
func (d *daemon) describeOld() (out []oldSession) {
	d.t.Helper()
	list, err := d.client.Sessions().ListSessions(d.ctx, &bridgev1.ListSessionsRequest{})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, s := range list.GetSessions() {
		o := oldSession{ID: s.GetSessionId(), State: s.GetState().String(), Shares: map[string]string{}}
		for _, share := range s.GetShares() {
			o.Shares[share.GetTenant()] = share.GetAccess().String()
		}
		if o.State != bridgev1.SessionState_SESSION_STATE_STORED.String() {
			d.describeEvents(&o)
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b oldSession) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// describeEvents adds a session's events, and what it waits for.
func (d *daemon) describeEvents(o *oldSession) {
	d.t.Helper()
	ids, at := d.durable(o.ID)
	o.Events = ids
	for _, p := range at {
		o.Positions = append(o.Positions, fmt.Sprintf("%d/%d", p.GetEpoch(), p.GetSeq()))
	}
	page, err := d.client.Sessions().ListEvents(d.ctx, &bridgev1.ListEventsRequest{SessionId: o.ID, Filter: &bridgev1.EventFilter{Types: []string{"session.idle"}}})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, e := range page.GetEvents() {
		o.Idles = append(o.Idles, fmt.Sprintf("%d/%d", e.GetPosition().GetEpoch(), e.GetPosition().GetSeq()))
	}
	pending, err := d.client.Callbacks().ListPending(d.ctx, &bridgev1.ListPendingRequest{SessionId: o.ID})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, c := range pending.GetCallbacks() {
		o.Callback = c.GetCallbackId()
	}
}

// keepOld puts what a killed server has left among the tests' data.
func (d *daemon) keepOld(sessions []oldSession) {
	d.t.Helper()
	text, err := json.MarshalIndent(sessions, "", " ")
	if err != nil {
		d.t.Fatal(err)
	}
	if err := os.RemoveAll(oldData); err != nil {
		d.t.Fatal(err)
	}
	for _, part := range []string{"data", filepath.Join("home", "session-state")} {
		copyFolder(d.t, filepath.Join(d.root, part), filepath.Join(oldData, part))
	}
	err = filepath.WalkDir(oldData, func(path string, e fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if err == nil && !e.IsDir() && (strings.HasPrefix(name, "inuse.") || strings.HasSuffix(name, "lock")) {
			err = os.Remove(path) // of processes that are gone
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(oldData, "expect.json"), append(text, '\n'), 0o600); err != nil {
		d.t.Fatal(err)
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

// TestOldData opens the data directory of an earlier version's server: every session is there
// in its state, with every event at its position and what was waited for, and can be used.
func TestOldData(t *testing.T) {
	t.Parallel()
	st := newStage(t, oldRules...)
	if st.before("1.0.102") {
		t.Skip("the sessions are those of CLI 1.0.102")
	}
	text, err := os.ReadFile(filepath.Join(oldData, "expect.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want []oldSession
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "old") // short: it is in a socket's path
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"data", "home"} {
		copyFolder(t, filepath.Join(oldData, part), filepath.Join(root, part))
	}
	d := startDaemon(&daemon{stage: st, root: root, flags: []string{"--provider", oldProvider(st)}})
	got := map[string]oldSession{}
	for _, o := range d.describeOld() {
		got[o.ID] = o
	}
	for _, w := range want {
		d.sameAsOld(w, got[w.ID])
	}
	if len(got) != len(want) {
		t.Errorf("there are %d sessions, and were %d", len(got), len(want))
	}
	i := slices.IndexFunc(want, func(o oldSession) bool { return o.ID == "left" })
	d.goOnWithOld(want[i])
}

// sameAsOld compares a session with what it was.
func (d *daemon) sameAsOld(want, got oldSession) {
	d.t.Helper()
	// No runtime of the old server's is left, and one that asks something is loaded again.
	states := []string{want.State}
	if want.State == bridgev1.SessionState_SESSION_STATE_LOADED.String() {
		states = append(states, bridgev1.SessionState_SESSION_STATE_UNLOADED.String())
	}
	if want.ID == "Keyed" {
		states = []string{bridgev1.SessionState_SESSION_STATE_CREDENTIALS_NEEDED.String()}
	}
	if !slices.Contains(states, got.State) {
		d.t.Errorf("session %q is %q, want one of %q", want.ID, got.State, states)
	}
	if want.ID != "left" { // until it is resumed
		d.sameEvents(want, got)
	}
	if text, other := mustJSON(d.t, want.Shares), mustJSON(d.t, got.Shares); !bytes.Equal(text, other) {
		d.t.Errorf("session %q is shared with %s, and was with %s", want.ID, other, text)
	}
	if want.Callback != "" && d.waiting(want.ID).GetCallbackId() != want.Callback {
		d.t.Errorf("session %q does not wait for %q", want.ID, want.Callback)
	}
}

// sameEvents compares a session's events with what they were.
func (d *daemon) sameEvents(want, got oldSession) {
	d.t.Helper()
	id := want.ID
	begins := func(what string, want, got []string) {
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			d.t.Errorf("%s of %q begin with %v, want %v", what, id, got, want)
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

// goOnWithOld uses the sessions; left is the one that was disconnected.
func (d *daemon) goOnWithOld(left oldSession) {
	d.t.Helper()
	answer, _ := copilot.AnswerTool("by a later version")
	d.resolve("working", d.waiting("working").GetCallbackId(), answer)
	d.resolve("asking", d.waiting("asking").GetCallbackId(), &bridgev1.Answer{Answer: &bridgev1.Answer_Permission{Permission: copilot.ApproveOnce()}})
	d.resolve("asking", d.waiting("asking").GetCallbackId(), answer)
	for _, id := range []string{"working", "asking"} {
		d.after(id, nil, "session.idle")
	}
	_, at := d.durable("running")
	if end := d.turnEnd("running", at[len(at)-1]); end.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
		d.t.Errorf("the turn that was cut off ended as %v", end)
	}
	if _, err := d.client.Sessions().ResumeSession(d.ctx, &bridgev1.ResumeSessionRequest{SessionId: "left"}); err != nil {
		d.t.Errorf("resuming the session that was left: %v", err)
	}
	again := oldSession{ID: "left"}
	d.describeEvents(&again)
	d.sameEvents(left, again)
	for _, id := range []string{"rested", "unused", "left", "running"} {
		d.sayTo(id, "and on")
	}
}

// TestOldDataIsNeutral looks for what must not be in the repository.
func TestOldDataIsNeutral(t *testing.T) {
	t.Parallel()
	bad := []string{planted}
	for _, top := range []string{"home", "root", "work", "Users"} {
		bad = append(bad, `"/`+top, ": /"+top)
	}
	for _, bad := range bad {
		if found := secretsIn(t, oldData, bad); found != nil {
			t.Errorf("%q is in %v", bad, found)
		}
	}
}
