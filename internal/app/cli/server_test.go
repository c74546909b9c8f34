package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestServer(t *testing.T) {
	t.Parallel()
	to := " --target " + server(t)
	expect(t, nil, "server"+to, result{exitOK, "health:         SERVING\nversion:        v1\n", ""})
	expect(t, nil, "server"+to, result{exitOK, "request:        at most 16 MiB\n", ""})
	expect(t, nil, "server now"+to, result{exitUsage, "", `unexpected argument "now"`})
	var got struct {
		Health string
		Info   struct{ Version string }
	}
	r := run(t, nil, "", strings.Fields("server -o json"+to)...)
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || got.Health != "SERVING" || got.Info.Version != "v1" {
		t.Errorf("%+v, %v", r, err)
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
