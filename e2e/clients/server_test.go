package clients

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	tokenEnv = "COPILOT_GRPC_TOKEN"
	// token is what the server under test asks callers for over TCP.
	token = "a-token-for-these-tests"
	// gate is where the model waits in the middle of its last answer.
	gate = "cut"
	// modelIntro is what the server says last of where things are.
	modelIntro = "A script plays the model: "
)

// announced finds the server's addresses and its model's in what it says at the start.
var announced = regexp.MustCompile(`(?s)address=(unix:\S+).*address=(127\S+).*` + modelIntro + `(\S+)`)

// server is a running copilot-grpc with the real CLI and a scripted model.
type server struct {
	// unix and tcp are its addresses, as a caller gives them.
	unix, tcp string
	// model is the URL of the scripted model.
	model string
}

// startServer starts bin/copilot-grpc, as its users do, in a new home.
func startServer(t *testing.T) *server {
	t.Helper()
	cli := os.Getenv("COPILOT_CLI_PATH")
	if cli == "" {
		t.Fatal("COPILOT_CLI_PATH is not set")
	}
	binary, err := filepath.Abs("../../bin/copilot-grpc")
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: a socket's path may be no longer than about a hundred bytes.
	home, err := os.MkdirTemp("", "clients-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	p := startDaemon(t, home, []string{"HOME=" + home, tokenEnv + "=" + token},
		binary, "serve", "--cli", cli, "--no-login",
		"--home", filepath.Join(home, ".copilot"), "--user-home", home,
		"--data-dir", filepath.Join(home, "data"),
		"--offline-model", writeScript(t, home),
		"--listen", "unix:"+filepath.Join(home, "s.sock"), "--listen", "127.0.0.1:0")
	found := announced.FindStringSubmatch(strings.Join(p.until(modelIntro), "\n"))
	if found == nil {
		t.Fatal("the server did not say where it listens")
	}
	p.keep(p.kept)
	return &server{unix: found[1], tcp: found[2], model: found[3]}
}

// writeScript writes the examples' script with a gate in the place of its pause.
func writeScript(t *testing.T, dir string) string {
	t.Helper()
	script, err := os.ReadFile("../../clients/example-model.yaml")
	if err != nil {
		t.Fatal(err)
	}
	gated := strings.Replace(string(script), "wait: 1s", "wait_for: "+gate, 1)
	if gated == string(script) {
		t.Fatal("the examples' script has no pause to put a gate in")
	}
	path := filepath.Join(dir, "model.yaml")
	if err := os.WriteFile(path, []byte(gated), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// release lets the model go on.
func (s *server) release(t *testing.T) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Post(s.model+"/_offline/release?gate="+gate, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		t.Fatalf("the model's gate: %s", response.Status)
	}
}
