package deploy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// TestBrowserLogin logs in by the link that "web link" prints, works with the cookie, and does so after a restart.
func TestBrowserLogin(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String() // which stays the same after the restart, as the cookie's name does
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	d := harness.NewDaemon(harness.NewScripted(t), "--web-listen", address, "--offline-model", "default")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	client := &http.Client{Jar: jar, Transport: tr}
	send := func(path, body string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(d.Ctx, http.MethodPost, "http://"+address+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Origin", "http://"+address)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	post := func(path, body string) string {
		t.Helper()
		resp := send(path, body)
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v: %s", path, resp.Status, err, text)
		}
		return string(text)
	}

	program, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(d.Ctx, program, "web", "link", "--role", "owner", "--target",
		"unix:"+filepath.Join(d.Root, "s"), "--qr").Output()
	if err != nil {
		t.Fatal(err)
	}
	link, code, _ := bytes.Cut(out, []byte("\n"))
	base, token, ok := strings.Cut(string(link), "/login#")
	if !ok || base != "http://"+address || !bytes.Contains(code, []byte("█")) {
		t.Fatalf("web link prints\n%s", out)
	}
	if me := post("/auth/link", `{"token":"`+token+`"}`); !strings.Contains(me, `"role":"owner"`) {
		t.Error(me)
	}
	const sessions = "/copilot.bridge.v1.SessionService/"
	post(sessions+"CreateSession", `{"sessionId":"s"}`)
	turn := post(sessions+"SendAndWait", `{"sessionId":"s","prompt":{"text":"Hello"}}`)
	if !strings.Contains(turn, "Hello") {
		t.Error(turn)
	}
	d.Crash()
	resp := send("/copilot.bridge.v1.EventService/Subscribe",
		`{"sessions":[{"sessionId":"s","filter":{"types":["assistant.message"]}}]}`)
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream after the restart: %s, %v", resp.Status, err)
		}
		if strings.Contains(line, "Hello") {
			break
		}
	}
	post("/auth/logout", "{}")
	if rest, err := io.ReadAll(lines); err != nil || !strings.Contains(string(rest), "unauthenticated") {
		t.Errorf("the stream after the logout: %q, %v", rest, err)
	}
}
