package tenancy

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Every method about one session that a guest's role could call is looked at: it is for guests, or
// it is not, and why.
func TestEveryMethodIsForGuestsOrNot(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../server/policy/methods.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) != 2 || !strings.HasPrefix(words[0], "session.") || words[1] != "read" && words[1] != "drive" {
			continue
		}
		rows[words[0]] = true
		if _, ok := guestMethods[words[0]]; !ok {
			t.Errorf("%s is not in guest_methods.txt: say whether it is for guests", words[0])
		}
	}
	for method, why := range guestMethods {
		if !rows[method] {
			t.Errorf("guest_methods.txt has %s, which no guest's role could call", method)
		}
		err := CheckMethod(method, "acme/s")
		if (err == nil) != (why == "") || err != nil && fault.ReasonOf(err) != fault.Forbidden {
			t.Errorf("%s of a shared session: %v", method, err)
		}
		if err := CheckMethod(method, "s"); err != nil {
			t.Errorf("%s of an own session: %v", method, err)
		}
	}
	for _, method := range []string{"session.none", "sessions.list", "session.shell.exec", "sessions.readPersistedEvents"} {
		if err := CheckMethod(method, "acme/s"); fault.ReasonOf(err) != fault.Forbidden {
			t.Errorf("%s of a shared session: %v", method, err)
		}
	}
}

// owned is a session of the host's own tenant.
type owned struct{}

func (owned) ID() string     { return "s" }
func (owned) Tenant() string { return caller.HostTenant }

// callers are the owner of the session, and a guest.
func callers(t *testing.T) (owner, guest context.Context) {
	return caller.With(t.Context(), caller.Caller{Role: caller.Admin}),
		caller.With(t.Context(), caller.Caller{Tenant: "guest", Role: caller.Owner, Confined: true})
}

// The only effect that an answer of a guest can have in the owner's CLI process, in any form, is one call of a
// caller's tool.
func TestAnswersOfGuests(t *testing.T) {
	t.Parallel()
	s := owned{}
	owner, guest := callers(t)
	const tool, shell = `{"promptRequest":{"kind":"custom-tool"}}`, `{"permissionRequest":{"kind":"shell"}}`
	for name, tc := range map[string]struct {
		kind, params, members string
		allowed               bool
	}{
		"reject":                     {callback.PermissionRequested, shell, `{"result":{"kind":"reject","feedback":"no"}}`, true},
		"not available":              {callback.PermissionRequested, shell, `{"result":{"kind":"user-not-available"}}`, true},
		"approve a command":          {callback.PermissionRequested, shell, `{"result":{"kind":"approve-once"}}`, false},
		"approve permanently":        {callback.PermissionRequested, tool, `{"result":{"kind":"approve-permanently"}}`, false},
		"approve a tool":             {callback.PermissionRequested, tool, `{"result":{"kind":"approve-once"}}`, true},
		"approve a tool, and more":   {callback.PermissionRequested, tool, `{"result":{"kind":"approve-once","approval":{"kind":"write"}}}`, false},
		"approve for the session":    {callback.PermissionRequested, tool, `{"result":{"kind":"approve-for-session"}}`, false},
		"two kinds":                  {callback.PermissionRequested, shell, `{"result":{"kind":"reject","kind":"approve-once"}}`, false},
		"two kinds, the other way":   {callback.PermissionRequested, shell, `{"result":{"kind":"approve-once","kind":"reject"}}`, true}, // the last counts
		"two results":                {callback.PermissionRequested, shell, `{"result":{"kind":"reject"},"result":{"kind":"approve-once"}}`, false},
		"no kind":                    {callback.PermissionRequested, shell, `{"result":{}}`, false},
		"no result":                  {callback.PermissionRequested, shell, `{}`, false},
		"no object":                  {callback.PermissionRequested, shell, `{"result":"approve-once"}`, false},
		"a request that is not read": {callback.PermissionRequested, `7`, `{"result":{"kind":"approve-once"}}`, false},
		"a tool's result":            {callback.ToolRequested, `{}`, `{"result":"x"}`, true},
		"a hook":                     {callback.HooksInvoke, `{}`, `{"output":{"permissionDecision":"allow"}}`, false},
		"a model's response":         {callback.ModelRequestStart, `{}`, `{}`, false},
		"a file":                     {callback.FSReadFile, `{}`, `{"content":"x"}`, false},
		"a kind that is new":         {"some.day", `{}`, `{}`, false},
	} {
		p := &callback.Pending{ID: "c", Kind: kindOf(tc.kind), Params: json.RawMessage(tc.params)}
		reply := callback.Reply{Members: json.RawMessage(tc.members)}
		if err := CheckAnswer(guest, s, p, reply, "answer"); (err == nil) != tc.allowed || err != nil && fault.ReasonOf(err) != fault.Forbidden {
			t.Errorf("%s: %v, want it allowed: %v", name, err, tc.allowed)
		}
		if err := CheckAnswer(owner, s, p, reply, "answer"); err != nil {
			t.Errorf("%s, of the owner's tenant: %v", name, err)
		}
		if got, want := Sees(s, "guest", p.Kind), guestCallbacks[tc.kind]; got != want || !Sees(s, s.Tenant(), p.Kind) {
			t.Errorf("%s: a guest is told of it: %v, want %v", name, got, want)
		}
		if err := CheckHandlers(guest, s, []string{tc.kind}, "handlers"); (err == nil) != guestCallbacks[tc.kind] {
			t.Errorf("%s: a guest handles it: %v", name, err)
		}
	}
}

// kindOf returns the kind of a method, or an unknown kind.
func kindOf(method string) *callback.Kind {
	if k := callback.ForEvent(method); k != nil {
		return k
	}
	return &callback.Kind{Method: method, Type: bridgev1.CallbackKind_CALLBACK_KIND_RAW}
}

func TestNames(t *testing.T) {
	t.Parallel()
	owner, guest := callers(t)
	for name, tc := range map[string]struct {
		ctx     context.Context
		tenant  string
		name    string
		foreign bool
	}{
		"its own tenant": {owner, caller.HostTenant, "s", false},
		"a guest":        {guest, "guest", "host/s", true},
	} {
		got := NameOf(tc.ctx, owned{})
		if got != tc.name || NameFor(owned{}, tc.tenant) != tc.name || IsShared(got) != tc.foreign || Foreign(tc.ctx, owned{}) != tc.foreign {
			t.Errorf("%s: %q", name, got)
		}
		if key := KeyOf(tc.tenant, got); key != session.Key(caller.HostTenant, "s") {
			t.Errorf("%s: the key of %q is %q", name, got, key)
		}
	}
}
