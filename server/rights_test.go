package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

const rightsToken = "a-token-of-acme-0123456789"

// boxedPolicy has a tenant with a sandbox, and one owner.
const boxedPolicy = `
version: 1
identity: {tokens: tokens}
tenants:
  acme: {members: [{token: acme, role: owner}], sandbox: [box]}
`

// policies writes a policy file, and returns what reads it as it is then, after a text in it was
// replaced by another.
func policies(t *testing.T) (store *policy.Store, with func(from, to string) *policy.Policy) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sum := sha256.Sum256([]byte(rightsToken))
	write("tokens", fmt.Sprintf("acme %s\n", hex.EncodeToString(sum[:])))
	store, err := policy.Open(write("policy", boxedPolicy), slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return store, func(from, to string) *policy.Policy {
		t.Helper()
		if !strings.Contains(boxedPolicy, from) {
			t.Fatalf("there is no %q in the policy", from)
		}
		p, err := policy.Load(write("policy", strings.ReplaceAll(boxedPolicy, from, to)), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

// begin is a call of acme's owner that the policy in force has let in. Its context is over when its
// rights are.
func begin(
	t *testing.T, s *admissions, store *policy.Store, class caller.Class,
) (ctx context.Context, ended func(error) error) {
	t.Helper()
	before := store.Current()
	proof := identity.Proof{Bearer: rightsToken}
	id, err := before.Authenticate(t.Context(), proof)
	if err != nil {
		t.Fatal(err)
	}
	who, err := before.Resolve(id, "")
	if err != nil {
		t.Fatal(err)
	}
	who.Class = class
	ctx, ended = s.under(t.Context(), store, before, &admission{introduction: &introduction{proof: proof, id: id, who: who}})
	return ctx, ended
}

func never(string) error { return nil }

// A call ends when a policy takes any of its rights away: the tenant's sandbox is one of them.
func TestCallsEndWithTheirRights(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from, to string
		want     fault.Reason
	}{
		"the same policy":  {"box", "box", 0},
		"another sandbox":  {"[box]", "[box, tighter]", 0},
		"the sandbox goes": {", sandbox: [box]", "", fault.Forbidden},
		"the role is less": {"role: owner", "role: participant", fault.Forbidden},
		"the role is more": {"role: owner", "role: admin", 0},
		"the member goes":  {"[{token: acme, role: owner}]", "[]", fault.Forbidden},
		"the tenant goes":  {"  acme: {", "  other: {", fault.Forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, with := policies(t)
			s := admissions{confining: never}
			ctx, ended := begin(t, &s, store, caller.Drive)
			s.check(with(tc.from, tc.to))
			if over := ctx.Err() != nil; over != (tc.want != 0) {
				t.Fatalf("the call is over: %v", over)
			}
			if err := ended(errors.New("as it would have ended")); tc.want != 0 && fault.ReasonOf(err) != tc.want {
				t.Errorf("it ended with %v, want %s", err, tc.want)
			}
		})
	}
}

// A call that an earlier policy admitted is checked again when a new policy takes effect.
func TestCallsOfAnEarlierPolicyAreAskedAgain(t *testing.T) {
	t.Parallel()
	store, with := policies(t)
	s, before := admissions{confining: never}, store.Current()
	id, err := before.Authenticate(t.Context(), identity.Proof{Bearer: rightsToken})
	if err != nil {
		t.Fatal(err)
	}
	who, err := before.Resolve(id, "")
	if err != nil {
		t.Fatal(err)
	}
	store.Use(with(", sandbox: [box]", ""))
	ctx, _ := s.under(t.Context(), store, before,
		&admission{introduction: &introduction{proof: identity.Proof{Bearer: rightsToken}, id: id, who: who}})
	if ctx.Err() == nil {
		t.Error("the call goes on with the sandbox gone")
	}
}

// Only calls that affect the host end when their process has another confinement than the new policy.
func TestHostCallsEndWithTheirConfinement(t *testing.T) {
	t.Parallel()
	changing := fault.New(fault.ConfinementChanging, "changing")
	for class, over := range map[caller.Class]bool{
		caller.Read: false, caller.Drive: false, caller.Own: false, caller.Host: true,
	} {
		store, with := policies(t)
		s := admissions{confining: func(tenant string) error {
			if tenant != "acme" {
				return nil
			}
			return changing
		}}
		ctx, ended := begin(t, &s, store, class)
		s.check(with("[box]", "[box, tighter]"))
		if (ctx.Err() != nil) != over {
			t.Errorf("a call of the class %q is over: %v", class, !over)
		}
		if err := ended(context.Canceled); over && fault.ReasonOf(err) != fault.ConfinementChanging {
			t.Errorf("a call of the class %q ended with %v", class, err)
		}
	}
}

// While a process has an earlier confinement, nothing that touches the host gets through, by its
// method or by its fields, nor in later frames; what touches nothing does.
func TestNothingTouchesTheHostMeanwhile(t *testing.T) {
	t.Parallel()
	store, _ := policies(t)
	var changing error
	g := newGate(&Config{Policy: store, Confining: func(string) error { return changing }})
	who := func(class caller.Class) caller.Caller {
		return caller.Caller{Tenant: "acme", Role: caller.Owner, Confined: true, Class: class}
	}
	path := &bridgev1.CreateSessionRequest{Config: &cliv1.SessionConfig{WorkingDirectory: proto.String("/")}}
	plain := &bridgev1.CreateSessionRequest{SessionId: "s"}
	check, err := g.checks(who(caller.Own))
	if err != nil || check(t.Context(), path) != nil {
		t.Fatalf("without a change: %v", err)
	}
	changing = fault.New(fault.ConfinementChanging, "changing")
	if err := check(t.Context(), path); fault.ReasonOf(err) != fault.ConfinementChanging {
		t.Errorf("a later frame with a path: %v", err)
	}
	if err := check(t.Context(), plain); err != nil {
		t.Errorf("a later frame without: %v", err)
	}
	if _, err := g.checks(who(caller.Own)); err != nil {
		t.Errorf("a call that begins now: %v", err)
	}
	if _, err := g.checks(who(caller.Host)); fault.ReasonOf(err) != fault.ConfinementChanging {
		t.Errorf("a call of the class host: %v", err)
	}
	owner := who(caller.Host)
	owner.Tenant = caller.HostTenant
	if check, err := g.checks(owner); check != nil || err != nil {
		t.Errorf("the host's owner: %v", err)
	}
}
