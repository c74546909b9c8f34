package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func writeAll(t *testing.T, files map[string][]byte) {
	t.Helper()
	for path, text := range files {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// remoteBridge is a bridge in a process of its own that a tenant reaches over TLS, with a
// token; and what a shim is told to reach it: a flag, a variable and a file.
func remoteBridge(st *stage) (d *daemon, flags, env []string) {
	st.t.Helper()
	dir := realDir(st.t)
	sum := sha256.Sum256([]byte(tenantToken("acme")))
	policy, config := filepath.Join(dir, "policy"), filepath.Join(dir, "config")
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	chain, secret, _ := selfSigned(st.t)
	writeAll(st.t, map[string][]byte{
		cert: []byte(chain), key: []byte(secret),
		filepath.Join(dir, "tokens"): fmt.Appendf(nil, "acme %s\n", hex.EncodeToString(sum[:])),
		policy:                       fmt.Appendf(nil, "version: 1\nidentity: {tokens: tokens}\ntenants:\n  acme: {members: [{token: acme, role: owner}], private_urls: [%q]}\n", origin(st.model.OpenAIBaseURL())),
		config:                       []byte("# how the bridge is reached\ntls-ca = " + cert + "\ngrace = 50s\n"),
	})
	address := freeAddress(st.t)
	d = newDaemon(st, "--listen", address, "--tls-cert", cert, "--tls-key", key, "--policy", policy)
	return d, []string{"--target", address}, []string{"COPILOT_GRPC_TOKEN=" + tenantToken("acme"), "COPILOT_GRPC_CONFIG=" + config}
}

// A program behind a shim does not notice that the bridge, which is reached over TLS and
// knows the shim by a token, is killed, or ended, and started again. What the bridge has
// forgotten, being a secret, the shim tells it again.
func TestShimRemote(t *testing.T) {
	t.Parallel()
	skipWithoutCLI(t)
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	st := newStage(t, onUser("work", call("lookup", nil)), onResult("lookup", say("It said {{tool_result}}")))
	d, flags, env := remoteBridge(st)
	p := startSDKProgram(t, st.ctx, env, append([]string{path, "shim"}, flags...)...)
	if got := p.call("connect", `{}`); !strings.Contains(got, `"protocolVersion":3`) {
		t.Fatalf("connect: %s", got)
	}
	const id = "9a0c1f4e-5a10-4c39-9d9e-0c7a2f1d8b11"
	p.call("session.create", `{"sessionId":"`+id+`","model":"gpt-4.1","streaming":true,"requestPermission":true,
		"provider":{"type":"openai","wireApi":"completions","apiKey":"`+planted+`","baseUrl":"`+st.model.OpenAIBaseURL()+`"},
		"tools":[{"name":"lookup","description":"d","parameters":{"type":"object"}}]}`)
	turns := []struct {
		prompt string
		before func()
	}{
		{"hello", func() {}},
		{"work", d.crash},
		{"work", func() { d.stop(syscall.SIGTERM); d.start() }},
	}
	for i, turn := range turns {
		turn.before()
		if got := p.call("session.send", `{"sessionId":"`+id+`","prompt":"`+turn.prompt+`"}`); !strings.Contains(got, "messageId") {
			t.Fatalf("send %d: %s", i, got)
		}
		p.until("session.idle", i+1)
	}
	if got := p.call("session.destroy", `{"sessionId":"`+id+`"}`); got != `{"success":true}` {
		t.Errorf("destroy: %s", got)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for event, n := range map[string]int{
		"session.start": 1, "user.message": 3, "assistant.message": 5, "tool.execution_complete": 2, "external_tool.requested": 2,
		"session.idle": 3, "session.resume": 0, "session.shutdown": 1,
	} {
		if got := len(slices.DeleteFunc(slices.Clone(p.events), func(e string) bool { return e != event })); got != n {
			t.Errorf("%s was heard %d times, not %d", event, got, n)
		}
	}
	if t.Failed() {
		t.Logf("heard %q", p.events)
	}
}

// Who has no token, or does not know the certificate, is told so.
func TestShimIsRefused(t *testing.T) {
	t.Parallel()
	skipWithoutCLI(t)
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	st := newStage(t)
	_, flags, env := remoteBridge(st)
	for name, test := range map[string]struct {
		env  []string
		want string
	}{
		"no token":       {[]string{env[1]}, "Unauthenticated"},
		"a wrong token":  {[]string{env[1], "COPILOT_GRPC_TOKEN=wrong"}, "Unauthenticated"},
		"no certificate": {[]string{env[0], "COPILOT_GRPC_GRACE=100ms", "COPILOT_GRPC_TLS=true"}, "certificate"},
	} {
		p := startSDKProgram(t, st.ctx, test.env, append([]string{path, "shim"}, flags...)...)
		<-p.conn.Done()
		if err := p.cmd.Wait(); err == nil || !strings.Contains(p.stderr.String(), test.want) {
			t.Errorf("%s: %v\n%s", name, err, &p.stderr)
		}
	}
}
