package cli

import (
	"strings"
	"testing"
)

func TestInboxMistakes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"verb":               {[]string{"inbox", "lst"}, `there is no "lst"`},
		"argument":           {[]string{"inbox", "list", "x"}, `unexpected argument "x"`},
		"format":             {[]string{"inbox", "list", "-o", "yaml"}, "want one of text, json, jsonl"},
		"no ID":              {[]string{"inbox", "answer", "--approve"}, "the ID is missing"},
		"no decision":        {[]string{"inbox", "answer", "x"}, "want one of --approve"},
		"two decisions":      {[]string{"inbox", "answer", "x", "--approve", "--deny"}, "want one of --approve"},
		"feedback alone":     {[]string{"inbox", "answer", "x", "--approve", "--feedback", "y"}, "--feedback is for --deny"},
		"decision of a list": {[]string{"inbox", "list", "--deny"}, "decisions are for inbox answer"},
		"live session":       {[]string{"inbox", "--session", "x"}, "--session is for inbox list and inbox answer ID"},
		"live decision":      {[]string{"inbox", "--approve"}, "decisions are for inbox answer"},
		"two sessions":       {[]string{"chat", "a", "b"}, `unexpected argument "b"`},
		"model of a session": {[]string{"chat", "a", "--model", "m"}, "--model and --dir are for new sessions"},
		"URL":                {[]string{"chat", "--target", "http://host:1"}, "write host:1"},
	} {
		r := run(t, nil, "", tc.args...)
		if r.code != exitUsage || !strings.Contains(r.stderr, tc.want) || r.stdout != "" {
			t.Errorf("%s: code %d, stdout %q, stderr %q; want %q", name, r.code, r.stdout, r.stderr, tc.want)
		}
	}
	for _, args := range [][]string{{"inbox", "list"}, {"chat"}} {
		r := run(t, nil, "", append(args, "--target", "unix:/nowhere")...)
		if r.code != exitNoServer || !strings.Contains(r.stderr, `Start one with "copilot-grpc serve"`) {
			t.Errorf("%q without a server: code %d, %q", args, r.code, r.stderr)
		}
	}
}

// An ID that looks like a flag is given after it.
func TestInboxOfServer(t *testing.T) {
	t.Parallel()
	target := server(t)
	if r := run(t, nil, "", "inbox", "list", "--target", target); r.code != exitOK || r.stdout != "" || !strings.Contains(r.stderr, "Nothing waits.") {
		t.Errorf("an empty inbox: %+v", r)
	}
	if r := run(t, nil, "", "inbox", "answer", "--approve", "--target", target, "--", "-x"); r.code != exitFailed ||
		!strings.Contains(r.stderr, `no callback "-x" waits`) {
		t.Errorf("an id that looks like a flag: %+v", r)
	}
}

// --session limits the list and the answer to a session, which must exist.
func TestInboxOfSession(t *testing.T) {
	t.Parallel()
	to := " --target " + server(t)
	expect(t, nil, "sessions create --id one"+to, result{exitOK, "", ""})
	expect(t, nil, "inbox list --session one"+to, result{exitOK, "", "Nothing waits."})
	for _, args := range []string{"inbox list --session onee" + to, "inbox answer x --deny --session onee" + to} {
		expect(t, nil, args, result{exitFailed, "", `Did you mean the session "one"?`})
	}
	expect(t, nil, "inbox answer x --deny --session one"+to, result{exitFailed, "", `no callback "x" waits`})
}

// The command line that comes back to a chat is one that a shell and this program read as it is meant.
func TestChatComesBack(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"one": " chat --target 'unix:/a b' one", "-x": " chat --target 'unix:/a b' -- -x", "a b\x1b": " chat --target 'unix:/a b' 'a b␛'",
	} {
		p, _, _ := newProgram(nil, "")
		f := newFlags("chat", "", "")
		o := chatOptions{connection: p.connection(f)}
		if err := f.parse(p, []string{"--target", "unix:/a b"}); err != nil {
			t.Fatal(err)
		}
		if got := o.command(id); !strings.HasSuffix(got, want) {
			t.Errorf("%q: %s, want %s", id, got, want)
		}
	}
}
