package runtime

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// testdata/data-d5a270a3 is what a server of commit d5a270a3 left when it was killed together with its CLI. Sessions
// of that version share the log journals/ for their newest events, and states/ for their states. It is made anew like
// testdata/data-d377de2:
//
//	git worktree add /tmp/old d5a270a3
//	(cd /tmp/old && go build -o /tmp/old-server ./cmd/copilot-grpc)
//	OLD_SERVER=/tmp/old-server COPILOT_CLI_PATH=$(.ci/install-cli 1.0.102) go test ./e2e/runtime -run TestMakeJointData
const jointData = "testdata/data-d5a270a3"

// oldTenant is the session of the tenant "acme".
const oldTenant = "theirs"

// jointTold is what callers of that server had been told.
type jointTold struct {
	Sessions []oldSession
	Tenant   oldSession        // of the tenant "acme"
	Messages map[string]string // by the id of the request that sent them
	Usage    *oldUsage         // of the deleted session
}

type oldUsage struct{ Turns, Requests, Input, Output int64 }

// waitingPrompts are the prompts that wait in the outbox of the session "queued", in order.
func waitingPrompts() []*bridgev1.Prompt {
	notes := []byte(strings.Repeat("A line of the notes.\n", 2400)) // larger than what an outbox has in its log
	return []*bridgev1.Prompt{
		{Text: "first in the queue"},
		{Text: "read the notes", Attachments: []*cliv1.Attachment{{Variant: &cliv1.Attachment_Blob{Blob: &cliv1.AttachmentBlob{
			MimeType: "text/plain", Data: notes, DisplayName: proto.String("notes.txt")}}}}},
	}
}

// startJoint starts a server that has the tenant "acme". The second daemon is the same server, used by that tenant.
func startJoint(st *harness.Scripted, path, root string) (d, acme *harness.Daemon) {
	st.T.Helper()
	dir, address := st.T.TempDir(), harness.FreeAddress(st.T)
	sum := sha256.Sum256([]byte(harness.TenantToken("acme")))
	harness.WriteFiles(st.T, dir, map[string]string{
		"tokens": "acme " + hex.EncodeToString(sum[:]) + "\n",
		"policy": fmt.Sprintf("version: 1\nidentity: {tokens: tokens}\ntenants:\n  acme: {members: [{token: acme, role: owner}], "+
			"providers: [ours], home: %q}\n", filepath.Join(root, "acme")),
	})
	d = harness.StartDaemon(&harness.Daemon{Scripted: st, Root: root, Path: path, Flags: []string{
		"--provider", oldProvider(st), "--listen", address, "--policy", filepath.Join(dir, "policy"),
		"--fsync-interval", "1m", // sessions share the log if more than eight journals are written between two syncs
	}})
	client, err := copilot.Dial(st.Ctx, address, copilot.WithToken(harness.TenantToken("acme")))
	if err != nil {
		st.T.Fatal(err)
	}
	st.T.Cleanup(func() { _ = client.Close() })
	return d, &harness.Daemon{Scripted: st, Root: filepath.Join(root, "acme"), Client: client}
}

// TestMakeJointData makes the data of another version's server anew.
func TestMakeJointData(t *testing.T) {
	path := os.Getenv("OLD_SERVER")
	if path == "" {
		t.Skip("OLD_SERVER names no program to make the data with")
	}
	st := harness.NewScripted(t, oldRules...)
	if err := os.Mkdir(oldRoot, 0o700); err != nil {
		t.Fatal(err) // of another user
	}
	d, acme := startJoint(st, path, oldRoot)
	_, err := acme.Client.Sessions().CreateSession(d.Ctx, &bridgev1.CreateSessionRequest{SessionId: oldTenant, ProviderRef: "ours",
		Config: &cliv1.SessionConfig{Model: proto.String(offlinemodel.DefaultModel), SkipCustomInstructions: proto.Bool(true),
			SystemMessage: &cliv1.SystemMessageConfig{Mode: cliv1.SystemMessageMode_SYSTEM_MESSAGE_MODE_REPLACE,
				Content: proto.String("You are a test.")}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"rested", "unused", "running", "queued", "deleted"} {
		openOld(d, id, false)
	}
	openOld(d, "Keyed", true)
	openOld(d, "working", false, toolNamed("works", true))
	openOld(d, "asking", false, toolNamed("asks", false))
	told := jointTold{Messages: map[string]string{}}
	acme.SayTo(oldTenant, "hello")
	for _, id := range []string{"deleted", "rested"} {
		d.SayTo(id, "hello")
	}
	if _, err := d.Client.Sessions().DeleteSession(d.Ctx, &bridgev1.DeleteSessionRequest{SessionId: "deleted"}); err != nil {
		t.Fatal(err)
	}
	send := func(id string, prompt *bridgev1.Prompt) {
		t.Helper()
		request := oldRequest(id, prompt)
		sent, err := d.Client.Sessions().Send(d.Ctx, request)
		if err != nil {
			t.Fatalf("send: %v", err)
		}
		told.Messages[request.GetRequestId()] = sent.GetMessageId()
	}
	send("rested", &bridgev1.Prompt{Text: "remember this"})
	d.After("rested", nil, "session.idle")
	if _, err := d.Client.Sessions().ShareSession(d.Ctx, &bridgev1.ShareSessionRequest{
		SessionId: "rested", Tenant: "acme", Access: bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE}); err != nil {
		t.Fatal(err)
	}
	send("working", &bridgev1.Prompt{Text: "work"})
	send("asking", &bridgev1.Prompt{Text: "ask"})
	for _, id := range []string{"running", "queued"} {
		send(id, &bridgev1.Prompt{Text: "wait"})
		d.After(id, nil, "assistant.turn_start")
	}
	d.Waiting("working")
	d.Waiting("asking")
	d.Eventually("the CLI's record of the tenant's session", func() bool {
		ids, _ := acme.Durable(oldTenant)
		text, _ := os.ReadFile(filepath.Join(d.Root, tenantState, oldTenant, "events.jsonl"))
		return strings.Contains(string(text), ids[len(ids)-1])
	})
	for _, id := range []string{"rested", "working", "asking", "running", "queued"} {
		d.Written(id)
	}
	told.Usage = usageOfDeleted(d)
	told.Sessions = describeOld(d)
	told.Tenant = oldSessions(acme)[oldTenant]
	for _, prompt := range waitingPrompts() {
		send("queued", prompt)
	}
	killWithCLI(d)
	keepOld(d, jointData, told, "data", filepath.Join("home", "session-state"), tenantState)
}

// tenantState is where the tenant's CLI has its record of the sessions.
var tenantState = filepath.Join("acme", "copilot", "session-state")

// oldSessions is describeOld by session.
func oldSessions(d *harness.Daemon) map[string]oldSession {
	d.T.Helper()
	out := map[string]oldSession{}
	for _, o := range describeOld(d) {
		out[o.ID] = o
	}
	return out
}

func oldRequest(id string, prompt *bridgev1.Prompt) *bridgev1.SendRequest {
	return &bridgev1.SendRequest{SessionId: id, RequestId: id + " " + prompt.GetText(), Prompt: prompt}
}

// killWithCLI kills the bridge and its CLI processes, which do nothing more once the bridge is gone.
func killWithCLI(d *harness.Daemon) {
	d.T.Helper()
	runtimes, err := d.Client.Runtimes().ListRuntimes(d.Ctx, &bridgev1.ListRuntimesRequest{})
	if err != nil {
		d.T.Fatal(err)
	}
	for _, rt := range runtimes.GetRuntimes() {
		_ = syscall.Kill(int(rt.GetPid()), syscall.SIGSTOP)
	}
	d.Stop(syscall.SIGKILL)
	for _, rt := range runtimes.GetRuntimes() {
		_ = syscall.Kill(int(rt.GetPid()), syscall.SIGKILL)
		d.Eventually("the end of the CLI", func() bool { return !harness.Alive(rt.GetPid()) })
	}
}

// usageOfDeleted returns what the deleted sessions have used.
func usageOfDeleted(d *harness.Daemon) *oldUsage {
	d.T.Helper()
	usage, err := d.Client.Sessions().GetUsage(d.Ctx, &bridgev1.GetUsageRequest{
		GroupBy: []bridgev1.UsageGroup{bridgev1.UsageGroup_USAGE_GROUP_SESSION}})
	if err != nil {
		d.T.Fatal(err)
	}
	for _, row := range usage.GetRows() {
		if row.GetSessionId() == "" {
			return &oldUsage{row.GetTurns(), row.GetRequests(), row.GetInputTokens(), row.GetOutputTokens()}
		}
	}
	return nil
}

// TestJointData opens the data directory of a server that shared logs between sessions: every event and state is there,
// the prompts in the outbox reach the model, requests have their answers, and a second start finds the same.
func TestJointData(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, oldRules...)
	if st.Before("1.0.102") {
		t.Skip("the sessions are those of CLI 1.0.102")
	}
	var told jointTold
	root := copyOld(t, jointData, &told)
	copyFolder(t, filepath.Join(jointData, tenantState), filepath.Join(root, tenantState))
	postpone(t, filepath.Join(root, "data", "requests"))
	d, acme := startJoint(st, "", root)
	got := oldSessions(d)
	for _, w := range told.Sessions {
		sameAsOld(d, w, got[w.ID])
	}
	if len(got) != len(told.Sessions) {
		t.Errorf("there are %d sessions, and were %d", len(got), len(told.Sessions))
	}
	sameAsOld(acme, told.Tenant, oldSessions(acme)[oldTenant])
	usage := usageOfDeleted(d)
	if usage == nil || *usage != *told.Usage {
		t.Errorf("the deleted session used %+v, and had used %+v", usage, told.Usage)
	}
	repeatOld(d, told.Messages)
	goOnWithJoint(d)
	acme.SayTo(oldTenant, "and on")
	if _, err := os.Stat(filepath.Join(root, "data", "states")); !os.IsNotExist(err) {
		t.Errorf("the log of states is left: %v", err)
	}
	d.Crash() // it also verifies that nothing is damaged or set aside
	for _, w := range told.Sessions {
		if w.ID == "unused" {
			continue // the CLI had no record of it: its first turn began another epoch
		}
		again := oldSession{ID: w.ID}
		describeEvents(d, &again)
		sameEvents(d, w, again)
	}
}

// postpone has remembered requests expire an hour from now. All else in their records stays.
func postpone(t *testing.T, dir string) {
	t.Helper()
	var entries []segment.Entry
	expires := time.Now().Add(time.Hour).UnixMilli()
	log, _, err := segment.Open(dir, 1, segment.Options{FS: segment.OS{}}, func(number uint64, body []byte) error {
		_, size := binary.Varint(body[2:]) // behind the format and the flags
		text := binary.AppendVarint(slices.Clone(body[:2]), expires)
		entries = append(entries, segment.Entry{Number: number, Body: append(text, body[2+size:]...)})
		return nil
	})
	if err != nil || len(entries) == 0 {
		t.Fatalf("there are %d requests, %v", len(entries), err)
	}
	if err := log.Replace(2, entries); err != nil {
		t.Fatal(err)
	}
	if err := log.Rest(); err != nil {
		t.Fatal(err)
	}
}

// repeatOld repeats the requests that sent prompts.
func repeatOld(d *harness.Daemon, messages map[string]string) {
	d.T.Helper()
	prompts := append(waitingPrompts(), &bridgev1.Prompt{Text: "wait"})
	requests := []*bridgev1.SendRequest{
		oldRequest("rested", &bridgev1.Prompt{Text: "remember this"}),
		oldRequest("working", &bridgev1.Prompt{Text: "work"}), oldRequest("asking", &bridgev1.Prompt{Text: "ask"}),
	}
	for _, prompt := range prompts {
		requests = append(requests, oldRequest("queued", prompt))
	}
	for _, request := range requests {
		sent, err := d.Client.Sessions().Send(d.Ctx, request)
		if err != nil || sent.GetMessageId() != messages[request.GetRequestId()] {
			d.T.Errorf("request %q again: %v, %v; its message was %q", request.GetRequestId(), sent, err,
				messages[request.GetRequestId()])
		}
	}
}

// goOnWithJoint uses the sessions.
func goOnWithJoint(d *harness.Daemon) {
	d.T.Helper()
	answerOld(d)
	for _, id := range []string{"rested", "unused", "running", "queued"} {
		d.SayTo(id, "and on")
	}
	texts := harness.UserTexts(d.Scripted)
	for _, prompt := range waitingPrompts() {
		n := 0
		for _, text := range texts {
			if strings.Contains(text, prompt.GetText()) {
				n++
			}
		}
		if n != 1 {
			d.T.Errorf("the prompt %q reached the model %d times: %q", prompt.GetText(), n, texts)
		}
	}
}
