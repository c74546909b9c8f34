package shim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// remoteBridge is a bridge in a separate process that a tenant reaches over TLS, with a token; and the settings of a
// shim that reaches it: a flag, a variable and a file.
func remoteBridge(st *harness.Scripted) (d *harness.Daemon, flags, env []string) {
	st.T.Helper()
	dir := harness.RealDir(st.T)
	sum := sha256.Sum256([]byte(harness.TenantToken("acme")))
	cert := filepath.Join(dir, "cert.pem")
	chain, secret, _ := harness.SelfSigned(st.T)
	harness.WriteFiles(st.T, dir, map[string]string{
		"cert.pem": chain, "key.pem": secret,
		"tokens": "acme " + hex.EncodeToString(sum[:]) + "\n",
		"policy": fmt.Sprintf(
			"version: 1\nidentity: {tokens: tokens}\ntenants:\n  acme: {members: [{token: acme, role: owner}], "+
				"private_urls: [%q]}\n", harness.Origin(st.Model.OpenAIBaseURL())),
		"config": "# how the bridge is reached\ntls-ca = " + cert + "\ngrace = 50s\n",
	})
	address := harness.FreeAddress(st.T)
	d = harness.NewDaemon(st, "--listen", address, "--tls-cert", cert,
		"--tls-key", filepath.Join(dir, "key.pem"), "--policy", filepath.Join(dir, "policy"))
	return d, []string{"--target", address}, []string{"COPILOT_GRPC_TOKEN=" + harness.TenantToken("acme"),
		"COPILOT_GRPC_CONFIG=" + filepath.Join(dir, "config")}
}

// A program behind a shim does not notice that the bridge, which is reached over TLS and knows the shim by a token, is
// killed, or ended, and started again. The shim repeats the secrets that the bridge has forgotten.
func TestShimRemote(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	path, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	st := harness.NewScripted(t, harness.OnUser("work", harness.Call("lookup", nil)),
		harness.OnResult("lookup", harness.Say("It said {{tool_result}}")))
	d, flags, env := remoteBridge(st)
	p := harness.StartSDKProgram(t, st.Ctx, env, append([]string{path, "shim"}, flags...)...)
	if got := p.Call("connect", `{}`); !strings.Contains(got, `"protocolVersion":3`) {
		t.Fatalf("connect: %s", got)
	}
	const id = "9a0c1f4e-5a10-4c39-9d9e-0c7a2f1d8b11"
	p.Call("session.create", `{"sessionId":"`+id+`","model":"gpt-4.1","streaming":true,"requestPermission":true,
		"provider":{"type":"openai","wireApi":"completions","apiKey":"`+harness.Planted+`","baseUrl":"`+
		st.Model.OpenAIBaseURL()+`"},
		"tools":[{"name":"lookup","description":"d","parameters":{"type":"object"}}]}`)
	turns := []struct {
		prompt string
		before func()
	}{
		{"hello", func() {}},
		{"work", d.Crash},
		{"work", func() { d.Stop(syscall.SIGTERM); d.Start() }},
	}
	for i, turn := range turns {
		turn.before()
		if got := p.Call("session.send", `{"sessionId":"`+id+`","prompt":"`+turn.prompt+`"}`); !strings.Contains(got,
			"messageId") {
			t.Fatalf("send %d: %s", i, got)
		}
		p.Until("session.idle", i+1)
	}
	if got := p.Call("session.destroy", `{"sessionId":"`+id+`"}`); got != `{"success":true}` {
		t.Errorf("destroy: %s", got)
	}
	p.Mu.Lock()
	defer p.Mu.Unlock()
	for event, n := range map[string]int{
		"session.start": 1, "user.message": 3, "assistant.message": 5, "tool.execution_complete": 2,
		"external_tool.requested": 2,
		"session.idle":            3, "session.resume": 0, "session.shutdown": 1,
	} {
		if got := len(slices.DeleteFunc(slices.Clone(p.Events), func(e string) bool { return e != event })); got != n {
			t.Errorf("%s was heard %d times, not %d", event, got, n)
		}
	}
	if t.Failed() {
		t.Logf("heard %q", p.Events)
	}
}

// A shim without a token, or that does not know the certificate, gets an error.
func TestShimIsRefused(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	path, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	st := harness.NewScripted(t)
	_, flags, env := remoteBridge(st)
	for name, test := range map[string]struct {
		env  []string
		want string
	}{
		"no token":       {[]string{env[1]}, "Unauthenticated"},
		"a wrong token":  {[]string{env[1], "COPILOT_GRPC_TOKEN=wrong"}, "Unauthenticated"},
		"no certificate": {[]string{env[0], "COPILOT_GRPC_GRACE=100ms", "COPILOT_GRPC_TLS=true"}, "certificate"},
	} {
		p := harness.StartSDKProgram(t, st.Ctx, test.env, append([]string{path, "shim"}, flags...)...)
		<-p.Conn.Done()
		if err := p.Cmd.Wait(); err == nil || !strings.Contains(p.Stderr.String(), test.want) {
			t.Errorf("%s: %v\n%s", name, err, &p.Stderr)
		}
	}
}
