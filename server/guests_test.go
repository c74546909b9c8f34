package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// The tenants of these tests: two that share, and one that has a sandbox.
const (
	tenantsOf = `
version: 1
identity: {tokens: tokens}
tenants:
  acme: {members: [{token: member, role: participant}], private_urls: ["https://acme.example", "https://both.example"]}
  owner: {members: [], private_urls: ["https://both.example"]}
  boxed: {members: [{token: member, role: owner}], sandbox: [confine], private_urls: ["https://both.example"]}
`
	withoutAcme = `
version: 1
identity: {tokens: tokens}
tenants:
  owner: {members: []}
  boxed: {members: [{token: member, role: owner}]}
`
	memberToken = "token-of-the-member-0123456789"
)

// openPolicy opens a policy of which the file can be written anew.
func openPolicy(t *testing.T) (store *policy.Store, change func(text string)) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.Sum256([]byte(memberToken))
	write("tokens", "member "+hex.EncodeToString(sum[:])+"\n")
	write("policy", tenantsOf)
	store, err := policy.Open(filepath.Join(dir, "policy"), slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return store, func(text string) {
		t.Helper()
		write("policy", text)
		if err := store.Reload(); err != nil {
			t.Fatal(err)
		}
	}
}

// frames is a stream on which these frames come.
type frames struct {
	grpc.ServerStream
	ctx  context.Context
	come []proto.Message
}

func (s *frames) Context() context.Context { return s.ctx }

func (s *frames) RecvMsg(m any) error {
	if len(s.come) == 0 {
		return io.EOF
	}
	proto.Merge(m.(*codec.Incoming).Value.(proto.Message), s.come[0])
	s.come = s.come[1:]
	return nil
}

// received is what became of each frame of a stream: nil, or why it was refused.
func received(ctx context.Context, c *call, come ...proto.Message) (out []error) {
	o := &observed{ServerStream: &frames{ctx: ctx, come: come}, ctx: ctx, call: c}
	for range come {
		out = append(out, o.RecvMsg(&bridgev1.AttachRequest{}))
	}
	return out
}

// The frames of these tests: a start, and what may come after it.
var (
	startFrame = &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: "owner/s"},
	}}}
	plainFrame = sendFrame()
	fileFrame  = sendFrame(&cliv1.Attachment{Variant: &cliv1.Attachment_File{File: &cliv1.AttachmentFile{Path: "/etc/passwd"}}})
	acmeURL    = sendFrame(urlAttachment("https://acme.example/x"))
	bothURL    = sendFrame(urlAttachment("https://both.example/x"))
)

func urlAttachment(url string) *cliv1.Attachment {
	return &cliv1.Attachment{Variant: &cliv1.Attachment_GithubUrl{GithubUrl: &cliv1.AttachmentGitHubUrl{Url: url}}}
}

func sendFrame(attachments ...*cliv1.Attachment) *bridgev1.AttachRequest {
	return &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Command{Command: &bridgev1.AttachCommand{
		Command: &bridgev1.AttachCommand_Send{Send: &bridgev1.Prompt{Text: "x", Attachments: attachments}},
	}}}
}

func isForbidden(err error) bool { return fault.ReasonOf(err) == fault.Forbidden }

// Every frame of a caller without the rights of the class host is checked, not just the first.
func TestLaterFramesAreChecked(t *testing.T) {
	t.Parallel()
	store, change := openPolicy(t)
	c := &call{check: (&gate{policy: store}).checkFields("acme")}
	got := received(t.Context(), c, startFrame, plainFrame, fileFrame, acmeURL)
	for i, want := range []bool{false, false, true, false} {
		if (got[i] != nil) != want || want && !isForbidden(got[i]) {
			t.Errorf("frame %d: %v, want it refused: %v", i, got[i], want)
		}
	}
	change(withoutAcme)
	if got := received(t.Context(), c, plainFrame); !isForbidden(got[0]) {
		t.Errorf("a frame after the tenant has gone from the policy: %v", got[0])
	}
}

// A call that has reached another tenant's session is a guest's call from then on, also if its caller has more
// rights in its own tenant. Its earlier messages are checked, too.
func TestFramesOfGuestsAreChecked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tenant string
		before []proto.Message // between the start and the bridge's look-up
		enters bool            // that the look-up gives it the session
		after  []proto.Message
		want   []bool // of the frames after: refused
	}{
		"plain":                      {"boxed", nil, true, []proto.Message{plainFrame, bothURL}, []bool{false, false}},
		"a file":                     {"boxed", nil, true, []proto.Message{fileFrame}, []bool{true}},
		"a URL of nobody's":          {"boxed", nil, true, []proto.Message{acmeURL}, []bool{true}},
		"a URL of the guest's alone": {"acme", nil, true, []proto.Message{acmeURL}, []bool{true}},
		"a file before":              {"boxed", []proto.Message{fileFrame}, false, nil, nil},
		"a URL before":               {"boxed", []proto.Message{bothURL}, false, nil, nil},
		"something harmless before": {"boxed", []proto.Message{plainFrame}, true, []proto.Message{fileFrame},
			[]bool{true}},
		"the host's owner as a guest": {caller.HostTenant, nil, true, []proto.Message{fileFrame}, []bool{true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, _ := openPolicy(t)
			c := &call{}
			ctx := (&gate{policy: store}).checkGuest(t.Context(), c, caller.Caller{Tenant: tc.tenant})
			for i, err := range received(ctx, c, append([]proto.Message{startFrame}, tc.before...)...) {
				if err != nil {
					t.Errorf("frame %d, of a call that is no guest's yet: %v", i, err)
				}
			}
			if err := caller.CheckGuest(ctx, "owner"); (err == nil) != tc.enters || err != nil && !isForbidden(err) {
				t.Errorf("coming to the session: %v, want it to be let: %v", err, tc.enters)
			}
			for i, err := range received(ctx, c, tc.after...) {
				if (err != nil) != tc.want[i] || err != nil && !isForbidden(err) {
					t.Errorf("frame %d after: %v, want it refused: %v", i, err, tc.want[i])
				}
			}
		})
	}
}

// A call that comes to no session of another tenant is judged by its caller's own rights alone.
func TestFramesAtHomeAreNotGuests(t *testing.T) {
	t.Parallel()
	store, _ := openPolicy(t)
	c := &call{}
	ctx := (&gate{policy: store}).checkGuest(t.Context(), c, caller.Caller{Tenant: "boxed"})
	for i, err := range received(ctx, c, startFrame, fileFrame, fileFrame) {
		if err != nil {
			t.Errorf("frame %d: %v", i, err)
		}
	}
}

// The first request counts as well, whichever way it came.
func TestRequestsOfGuestsAreChecked(t *testing.T) {
	t.Parallel()
	store, change := openPolicy(t)
	request := func(c *call) context.Context {
		return (&gate{policy: store}).checkGuest(t.Context(), c, caller.Caller{Tenant: "boxed"})
	}
	file := &bridgev1.SendRequest{SessionId: "owner/s", Prompt: fileFrame.GetCommand().GetSend()}
	if err := caller.CheckGuest(request(&call{request: file}), "owner"); !isForbidden(err) {
		t.Errorf("a file: %v", err)
	}
	if err := caller.CheckGuest(request(&call{}), "owner"); !isForbidden(err) {
		t.Errorf("a request that is not known: %v", err)
	}
	plain := request(&call{request: &bridgev1.SendRequest{SessionId: "owner/s"}})
	if err := caller.CheckGuest(plain, "owner"); err != nil {
		t.Errorf("a plain request: %v", err)
	}
	change("version: 1\nidentity: {tokens: tokens}\ntenants: {boxed: {members: []}}\n")
	if err := caller.CheckGuest(plain, "owner"); !isForbidden(err) {
		t.Errorf("a plain request to a tenant that is no more: %v", err)
	}
}

// member is a call of the token's holder, as a policy lets it in.
func member(t *testing.T, p *policy.Policy, tenant string) *admission {
	t.Helper()
	proof := identity.Proof{Bearer: memberToken}
	id, err := p.Authenticate(t.Context(), proof)
	if err != nil {
		t.Fatal(err)
	}
	who, err := p.Resolve(id, tenant)
	if err != nil {
		t.Fatal(err)
	}
	return &admission{introduction: &introduction{proof: proof, id: id, who: who}}
}

// A policy change between the admission of a call and its registration checks the call again at once: no other
// code would.
func TestCallsAdmittedDuringAChangeAreAskedAgain(t *testing.T) {
	t.Parallel()
	for _, tenant := range []string{"acme", "boxed"} { // one has gone, the other has lost its sandbox
		store, change := openPolicy(t)
		before := store.Current()
		a := member(t, before, tenant)
		var s admissions
		store.OnChange(s.check)
		change(withoutAcme) // the call is not noted yet, so that this does not ask it
		ctx, ended := s.under(t.Context(), store, before, a)
		if ctx.Err() == nil || !errors.Is(context.Cause(ctx), caller.ErrWithdrawn) {
			t.Errorf("%s: the call goes on: %v", tenant, context.Cause(ctx))
		}
		if err := ended(ctx.Err()); !isForbidden(err) {
			t.Errorf("%s: the call ends with %v", tenant, err)
		}
		if len(s.calls) != 0 {
			t.Errorf("%s: the call is still noted", tenant)
		}
	}
}

// A call that keeps its rights is left alone, by the policy that let it in and by a later one.
func TestCallsThatKeepTheirRightsGoOn(t *testing.T) {
	t.Parallel()
	store, change := openPolicy(t)
	before := store.Current()
	var s admissions
	store.OnChange(s.check)
	ctx, ended := s.under(t.Context(), store, before, member(t, before, "acme"))
	change(tenantsOf + "  another: {members: []}\n")
	if ctx.Err() != nil {
		t.Errorf("the call ends: %v", context.Cause(ctx))
	}
	change(withoutAcme)
	if !errors.Is(context.Cause(ctx), caller.ErrWithdrawn) {
		t.Errorf("the call goes on without its rights: %v", context.Cause(ctx))
	}
	if err := ended(ctx.Err()); !isForbidden(err) {
		t.Errorf("the call ends with %v", err)
	}
}
