package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestServer(t *testing.T) {
	t.Parallel()
	to := " --target " + server(t)
	expect(t, nil, "server"+to, result{exitOK, "health:         SERVING\nversion:        v1\n", ""})
	expect(t, nil, "server"+to, result{exitOK, "request:        at most 16 MiB\n", ""})
	expect(t, nil, "server"+to, result{exitOK, "you:            socket, admin of the tenant host\n" +
		"known by:       the unix socket\nallowed:        read, drive, own, host, operate\n", ""})
	expect(t, nil, "server now"+to, result{exitUsage, "", `unexpected argument "now"`})
	var got struct {
		Health string
		Info   struct {
			Version string
			Caller  struct{ Tenant string }
		}
	}
	r := run(t, nil, "", strings.Fields("server -o json"+to)...)
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || got.Health != "SERVING" || got.Info.Version != "v1" ||
		got.Info.Caller.Tenant != "host" {
		t.Errorf("%+v, %v", r, err)
	}
}

// The caller is described in words; an older server tells nothing of it.
func TestCallerFields(t *testing.T) {
	t.Parallel()
	if got := callerFields(nil); got != nil {
		t.Errorf("an older server: %v", got)
	}
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.Local)
	for _, tc := range []struct {
		who  *bridgev1.CallerInfo
		want []field
	}{
		{&bridgev1.CallerInfo{Tenant: "host", Name: "socket", Proof: bridgev1.CallerProof_CALLER_PROOF_SOCKET,
			Role: bridgev1.Role_ROLE_ADMIN, CallClasses: []bridgev1.CallClass{bridgev1.CallClass_CALL_CLASS_READ,
				bridgev1.CallClass_CALL_CLASS_OPERATE}},
			[]field{{"you", "socket, admin of the tenant host"}, {"known by", "the unix socket"},
				{"allowed", "read, operate"}, {"until", ""}}},
		{&bridgev1.CallerInfo{Tenant: "acme", Name: "ann", Proof: bridgev1.CallerProof_CALLER_PROOF_JWT,
			Issuer: "https://issuer.example", WebLogin: true, Role: bridgev1.Role_ROLE_OBSERVER, Confined: true,
			CallClasses: []bridgev1.CallClass{bridgev1.CallClass_CALL_CLASS_READ}, ExpireTime: timestamppb.New(at)},
			[]field{{"you", "ann, observer of the tenant acme"},
				{"known by", "a browser's login with a JSON web token of https://issuer.example"},
				{"allowed", "read; a sandbox confines the sessions"}, {"until", "2026-02-03 04:05:06"}}},
		{&bridgev1.CallerInfo{Proof: 99, Role: 98}, []field{{"you", ", 98 of the tenant "}, {"known by", "99"},
			{"allowed", ""}, {"until", ""}}},
	} {
		if got := callerFields(tc.who); !slices.Equal(got, tc.want) {
			t.Errorf("%v:\n%q, want\n%q", tc.who, got, tc.want)
		}
	}
}

func TestSizeText(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1024: "1 KiB", 1536: "1.5 KiB",
		4 << 20: "4 MiB", 3 << 29: "1.5 GiB"} {
		if got := sizeText(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	to := " --target " + server(t)
	expect(t, nil, "run hello"+to, result{exitOK, "\n", "session "})
	for args, want := range map[string]result{
		"usage":                     {exitOK, "TURNS  REQUESTS  INPUT  CACHED  OUTPUT  COST  TIME\n", ""},
		"usage --by model,day":      {exitOK, "MODEL ", ""},
		"usage --since 24h":         {exitOK, "TURNS ", ""},
		"usage --since -1h":         {exitUsage, "", "--since is negative"},
		"usage --by month":          {exitUsage, "", "want one of day, model, session, owner"},
		"usage --label x=y -o json": {exitOK, "[]\n", ""},
		"usage none":                {exitFailed, "", "NotFound"},
		"usage one two":             {exitUsage, "", `unexpected argument "two"`},
	} {
		expect(t, nil, args+to, want)
	}
}

func TestRuntimes(t *testing.T) {
	t.Parallel()
	to := " --target " + server(t)
	expect(t, nil, "sessions create --id one"+to, result{exitOK, "one\n", ""})
	var list []struct{ RuntimeID, State string }
	r := run(t, nil, "", strings.Fields("runtimes list -o json"+to)...)
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	id := list[0].RuntimeID
	complete := append([]string{"__complete", "runtimes", "drain"}, strings.Fields(to)...)
	if r := run(t, nil, "", append(complete, "")...); !strings.Contains(r.stdout, id+"\t") {
		t.Errorf("completion: %+v", r)
	}
	for _, step := range []struct {
		args string
		want result
	}{
		{"runtimes list", result{exitOK, id + "  ready ", ""}},
		{"runtimes drain", result{exitUsage, "", "want RUNTIME"}},
		{"runtimes drain none", result{exitFailed, "", "Find its id with: copilot-grpc runtimes list\n"}},
		{"runtimes drain " + id, result{exitOK, id + "  draining ", ""}},
		{"runtimes drain --undo " + id, result{exitOK, id + "  ready ", ""}},
		{"runtimes recycle --grace -1s " + id, result{exitUsage, "", "--grace is negative"}},
		{"runtimes recycle --grace 0s " + id, result{exitOK, id + "  down ", ""}},
	} {
		expect(t, nil, step.args+to, step.want)
	}
}
