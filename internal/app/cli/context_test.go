package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// expect runs a command line and checks its exit code, and a part of what it prints.
func expect(t *testing.T, env []string, args string, want result) result {
	t.Helper()
	got := run(t, env, "", strings.Fields(args)...)
	if got.code != want.code || !strings.Contains(got.stdout, want.stdout) || !strings.Contains(got.stderr, want.stderr) {
		t.Errorf("%s: %+v", args, got)
	}
	return got
}

func TestContexts(t *testing.T) {
	t.Parallel()
	target := server(t)
	dir := t.TempDir()
	env := []string{"XDG_CONFIG_HOME=" + dir, "HOME=" + dir}
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("a-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args string
		want result
	}{
		{"context", result{exitUsage, "", "want a command: add, use"}},
		{"context list", result{exitOK, "CURRENT  NAME  TARGET  TOKEN\n", "No context is in use"}},
		{"context add", result{exitUsage, "", "want NAME"}},
		{"context add prod", result{exitUsage, "", "want --target"}},
		{"context add -- -x --target t", result{exitUsage, "", "unexpected argument"}},
		{"context add --target t -- -x", result{exitUsage, "", `"-x" has other characters`}},
		{"context add prod --target https://host:1/", result{exitUsage, "", "write host:1"}},
		{"context add prod --target host:1 --token-file /none", result{exitUsage, "", "--token-file: stat /none"}},
		{"context add prod --target host:1 --token-env A --token-command b", result{exitUsage, "", "exclude each other"}},
		{"context add prod --target host:1 --tls-cert " + token, result{exitUsage, "", "need each other"}},
		{"context use prod", result{exitUsage, "", `no context "prod"`}},
		{"context add prod --target " + target + " --token-file " + token,
			result{exitOK, "added the context prod\nuse it with: copilot-grpc context use prod\n", ""}},
		{"context add prod --target host:1", result{exitUsage, "", "replace it with --replace"}},
		{"context add lab --target unix:/none --use", result{exitOK, "added the context lab\n", ""}},
		{"context list", result{exitOK, "*        lab   unix:/none", ""}},
		{"context list -o jsonl", result{exitOK, `{"name":"lab","current":true,"target":"unix:/none"}` + "\n", ""}},
		{"context show prod", result{exitOK, "name:   prod\ntarget: " + target + "\ntoken:  file " + token + "\n", ""}},
		{"context show -o json", result{exitOK, `"target": "unix:/none"`, ""}},
		{"context show prd", result{exitUsage, "", "did you mean prod?"}},
		{"call RuntimeService/Ping", result{exitNoServer, "", `No server answers at unix:/none (context "lab").`}},
		{"call --context prod RuntimeService/Ping", result{exitOK, "{", ""}},
		{"call --context prdo RuntimeService/Ping", result{exitUsage, "", "did you mean prod?"}},
		{"call --context prod --target x RuntimeService/Ping", result{exitUsage, "", "choose one"}},
		{"call --target " + target + " RuntimeService/Ping", result{exitOK, "{", ""}},
		{"context use prod", result{exitOK, "commands call the context prod\n", ""}},
		{"call RuntimeService/Ping", result{exitOK, "{", ""}},
		{"__complete call --context p", result{exitOK, "prod\t" + target, ""}},
		{"__complete context use p", result{exitOK, "prod\t" + target, ""}},
		{"context remove prod", result{exitOK, "commands call the server on the local socket\n", ""}},
		{"context remove prod", result{exitUsage, "", `no context "prod"`}},
		{"context use lab", result{exitOK, "", ""}},
		{"context use --local", result{exitOK, "commands call the server on the local socket\n", ""}},
		{"context use --local lab", result{exitUsage, "", "unexpected argument"}},
		{"context show", result{exitOK, "target: unix:", ""}},
	} {
		if got := expect(t, env, step.args, step.want); strings.Contains(got.stdout+got.stderr, "a-secret") {
			t.Errorf("%s prints the token: %+v", step.args, got)
		}
	}
	expect(t, append(env, "COPILOT_GRPC_CONTEXT=lab"), "call RuntimeService/Ping", result{exitNoServer, "", "unix:/none"})
	expect(t, append(env, "COPILOT_GRPC_CONTEXT=lab"), "call --target "+target+" RuntimeService/Ping",
		result{exitOK, "{", ""})
	expect(t, append(env, "COPILOT_GRPC_CONTEXT=lab", "COPILOT_GRPC_TARGET=x"), "call RuntimeService/Ping",
		result{exitUsage, "", "choose one"})
	info, err := os.Stat(filepath.Join(dir, "copilot-grpc", "contexts.json"))
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file of contexts: %v, %v", info, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "copilot-grpc", "contexts.json")); err != nil ||
		strings.Contains(string(text), "a-secret") {
		t.Errorf("the file of contexts: %s, %v", text, err)
	}
}

// A file that is damaged, newer, or open to other users is reported, and stays as it is.
func TestBadFileOfContexts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"damaged":      {`{"current":`, 0o600, "is damaged"},
		"newer":        {`{"groups":{}}`, 0o600, "from a newer version"},
		"open":         {`{}`, 0o666, "fix it with: chmod"},
		"much too big": {strings.Repeat(" ", maxContexts+1), 0o600, "bytes, more than"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "copilot-grpc", "contexts.json")
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, tc.mode); err != nil {
			t.Fatal(err)
		}
		for _, args := range []string{"context list", "context add x --target y", "call RuntimeService/Ping"} {
			expect(t, []string{"XDG_CONFIG_HOME=" + dir}, args, result{exitFailed, "", tc.want})
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != tc.text {
			t.Errorf("%s: the file has changed: %v", name, err)
		}
	}
}

// Without a home there are no contexts, and commands call the target that they are given.
func TestContextsWithoutHome(t *testing.T) {
	t.Parallel()
	target := server(t)
	for args, want := range map[string]result{
		"context list":                                     {exitFailed, "", "set HOME"},
		"context add x --target y":                         {exitFailed, "", "set HOME"},
		"call --context x RuntimeService/Ping":             {exitFailed, "", "set HOME"},
		"call --target " + target + " RuntimeService/Ping": {exitOK, "{", ""},
	} {
		expect(t, nil, args, want)
	}
	c := (&program{configDir: configDir(nil)}).connection(newFlags("", "", ""))
	if err := c.choose(); err != nil || !strings.HasPrefix(c.server.Target, "unix:") {
		t.Errorf("without contexts: %+v, %v", c.server, err)
	}
}

// A token comes from a file, a variable or a command, and its absence is reported.
func TestTokensOfContexts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	target := guarded(t)
	for name, tc := range map[string]struct {
		flag, want string
		env        []string
	}{
		"file":            {"--token-file " + file, "Bearer from-file", nil},
		"variable":        {"--token-env MY_TOKEN", "Bearer from-variable", []string{"MY_TOKEN=from-variable"}},
		"command":         {"--token-command 'printf from-command'", "Bearer from-command", nil},
		"none":            {"", "", []string{"COPILOT_GRPC_TOKEN=of-another-server"}},
		"empty variable":  {"--token-env MY_TOKEN", "MY_TOKEN, which has the context's token, is empty", nil},
		"failing command": {"--token-command 'exit 3'", "exit status 3", nil},
		"silent command":  {"--token-command 'true'", "did not print one word", nil},
	} {
		env := append(tc.env, "XDG_CONFIG_HOME="+t.TempDir())
		args := []string{"context", "add", "c", "--use", "--target", target}
		if flag, value, _ := strings.Cut(tc.flag, " "); flag != "" {
			args = append(args, flag, strings.Trim(value, "'"))
		}
		if r := run(t, env, "", args...); r.code != exitOK {
			t.Fatalf("%s: %+v", name, r)
		}
		r := run(t, env, "", "call", "RuntimeService/Ping")
		if r.code != exitFailed || !strings.Contains(r.stderr, "sent: "+tc.want+"\n") && !strings.Contains(r.stderr, tc.want) ||
			!strings.Contains(r.stderr, "context show c") || strings.Contains(r.stderr, "of-another-server") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
