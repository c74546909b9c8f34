package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestSessionsList(t *testing.T) {
	t.Parallel()
	to := " --target " + server(t)
	expect(t, nil, "sessions list"+to, result{exitOK, "ID  STATE  AGE  TITLE  MODEL  DIRECTORY  TOKENS\n", ""})
	expect(t, nil, "sessions list -o json"+to, result{exitOK, "[]\n", ""})
	expect(t, nil, "sessions create --id one --label team=a,b --dir /srv"+to, result{exitOK, "one\n", ""})
	expect(t, nil, "sessions create --id two"+to, result{exitOK, "two\n", ""})
	for args, want := range map[string]string{
		"":                            "two,one",
		"--label team=a,b":            "one",
		"--label team=c":              "",
		"--state loaded":              "two,one",
		"--state stored,disconnected": "",
	} {
		r := expect(t, nil, "sessions list -o jsonl "+args+to, result{exitOK, "", ""})
		var ids []string
		decoder := json.NewDecoder(strings.NewReader(r.stdout))
		for {
			var s struct{ SessionID string }
			if err := decoder.Decode(&s); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, s.SessionID)
		}
		if got := strings.Join(ids, ","); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
	for args, want := range map[string]result{
		"sessions list --state idle":               {exitUsage, "", "want some of loaded, running"},
		"sessions list --label team":               {exitUsage, "", "want KEY=VALUE"},
		"sessions show -x":                         {exitUsage, "", "unknown flag: --x; an argument that begins with - follows --"},
		"sessions list all":                        {exitUsage, "", `unexpected argument "all"`},
		"sessions list -o yaml":                    {exitUsage, "", "want one of text, json, jsonl"},
		"sessions list --watch --history" + to:     {exitUsage, "", "choose one"},
		"sessions show" + to:                       {exitUsage, "", "want SESSION"},
		"sessions show one" + to:                   {exitOK, "labels:      team=a,b\n", ""},
		"sessions show one -o json" + to:           {exitOK, `"team": "a,b"`, ""},
		"sessions show oen" + to:                   {exitFailed, "", `Did you mean the session "one"?`},
		`call GetSession {"sessionId":"oen"}` + to: {exitFailed, "", `Did you mean the session "one"?`},
		"__complete sessions show --target" + strings.TrimPrefix(to, " --target") + " o": {exitOK, "one\t", ""},
	} {
		expect(t, nil, args, want)
	}
	env := []string{"COPILOT_GRPC_TARGET=" + strings.TrimPrefix(to, " --target "), "COPILOT_GRPC_OUTPUT=jsonl"}
	expect(t, env, "sessions list", result{exitOK, `{"sessionId":"two"`, ""})
	expect(t, env, "__complete sessions delete t", result{exitOK, "two\t", ""})
	expect(t, env, "__complete run Hello --session t", result{exitOK, "two\t", ""})
}

// watched is what a command has printed so far.
type watched struct {
	lines   chan string
	mu      sync.Mutex
	partial bytes.Buffer
}

// Write implements io.Writer.
func (w *watched) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.partial.Write(text)
	for {
		line, err := w.partial.ReadString('\n')
		if err != nil {
			w.partial.WriteString(line)
			return len(text), nil
		}
		w.lines <- line
	}
}

// watching runs a command until the context ends, and returns its lines.
func watching(t *testing.T, ctx context.Context, args ...string) (next func() string, ended <-chan int) {
	t.Helper()
	p, _, stderr := newProgram(nil, "")
	out := &watched{lines: make(chan string, 1000)}
	p.stdout = &output{w: out}
	code := make(chan int, 1)
	go func() { code <- p.main(ctx, args) }()
	return func() string {
		select {
		case line := <-out.lines:
			return line
		case c := <-code:
			t.Fatalf("%q ended with %d: %s", args, c, stderr)
		case <-t.Context().Done():
		}
		return ""
	}, code
}

// --watch prints the open sessions and then changes, also of those that leave the states that were asked for.
func TestSessionsWatch(t *testing.T) {
	t.Parallel()
	target := server(t)
	to := " --target " + target
	expect(t, nil, "sessions create --id one"+to, result{exitOK, "one\n", ""})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	next, ended := watching(t, ctx, "sessions", "list", "--watch", "--target", target)
	jsonCtx, stopJSON := context.WithCancel(t.Context())
	defer stopJSON()
	nextJSON, endedJSON := watching(t, jsonCtx, "sessions", "list", "-w", "-o", "json", "--target", target)
	if head := next(); !strings.HasPrefix(head, "TIME      CHANGE        ID") {
		t.Errorf("%q", head)
	}
	until := func(next func() string, words ...string) {
		t.Helper()
		for {
			line := next()
			missing := false
			for _, word := range words {
				missing = missing || !strings.Contains(line, word)
			}
			if !missing {
				return
			}
		}
	}
	until(next, "current", "one", "loaded")
	until(nextJSON, `"SESSION_CHANGE_CURRENT"`, `"sessionId":"one"`)
	expect(t, nil, "sessions delete one"+to, result{exitOK, "deleted one\n", ""})
	until(next, "deleted", "one")
	until(nextJSON, `"SESSION_CHANGE_DELETED"`)
	stop()
	stopJSON()
	if code := max(<-ended, <-endedJSON); code != exitOK {
		t.Errorf("the end of watching is code %d", code)
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for ago, want := range map[time.Duration]string{
		-time.Hour: "0s", 59 * time.Second: "59s", time.Minute: "1m", 90 * time.Minute: "1h", 47 * time.Hour: "47h",
		48 * time.Hour: "2d",
	} {
		if got := age(timestamppb.New(now.Add(-ago)), now); got != want {
			t.Errorf("%s: %s, want %s", ago, got, want)
		}
	}
	if got := age(nil, now); got != "" {
		t.Errorf("no time: %q", got)
	}
}

// The table has the tokens that sessions have used, and the owners of those that another tenant shares.
func TestSessionTable(t *testing.T) {
	t.Parallel()
	session := func(id, owner string) *copilot.SessionInfo {
		return &copilot.SessionInfo{ID: id, Proto: &bridgev1.Session{SessionId: id, Owner: owner}}
	}
	used := map[string]int64{"a": 9_999, "b": 10_000, "c": 12_345_678}
	for want, found := range map[string][]*copilot.SessionInfo{
		"ID  STATE  AGE  TITLE  MODEL  DIRECTORY  TOKENS\n" +
			"a                                        9999\n" +
			"b                                        10k\n" +
			"c                                        12M\n" +
			"d\n": {session("a", ""), session("b", ""), session("c", ""), session("d", "")},
		"ID  STATE  AGE  TITLE  MODEL  DIRECTORY  TOKENS  OWNER\n" +
			"a                                        9999\n" +
			"e                                                acme\n": {session("a", ""), session("e", "acme")},
	} {
		rows := new(listOptions).table(found, used, time.Now())
		if got := rows.text(0); got != want {
			t.Errorf("the table is\n%s, want\n%s", got, want)
		}
	}
}
