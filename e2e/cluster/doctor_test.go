package cluster

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// Doctor says what a replica would find of the NATS servers, and changes nothing there.
func TestDoctorTellsOfTheCluster(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	program, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	nats := natstest.Start(t, natstest.Listen)
	away := natstest.Start(t, natstest.Listen)
	away.Stop()
	home := harness.RealDir(t)
	files := servertest.NewCA(t).Issue(t)
	for name, test := range map[string]struct {
		flags []string
		says  string
		fails bool
	}{
		"one server": {[]string{"--cluster", nats.URL()}, "MISSING  cluster: .*streams have 1 replica", true},
		"one server accepted": {
			[]string{"--cluster", nats.URL(), "--cluster-unsafe"}, "look     cluster: NATS .*copies of each stream: 1", false,
		},
		"no server": {[]string{"--cluster", away.URL()}, "MISSING  cluster: .*no connection to", true},
		"a server without TLS": {
			[]string{"--cluster", strings.Replace(nats.URL(), "nats:", "tls:", 1)},
			"MISSING  cluster: .*no connection to", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			doctor := exec.CommandContext(t.Context(), program, append([]string{
				"doctor", "--listen", "unix:" + filepath.Join(home, "s"), "--home", filepath.Join(home, "copilot"),
				"--node-name", "n", "--node-listen", harness.FreeAddress(t),
				"--node-cert", files.CertFile, "--node-key", files.KeyFile, "--node-ca", files.CAFile,
			}, test.flags...)...)
			doctor.Env = append(doctor.Environ(), "HOME="+home)
			out, err := doctor.CombinedOutput()
			says := regexp.MustCompile("(?m)^" + test.says + ".*\n +fix: ")
			if !says.Match(out) || (err != nil) != test.fails {
				t.Errorf("doctor says, with %v, and not %q with how to mend it:\n%s", err, test.says, out)
			}
		})
	}
	streams := nats.JetStream().StreamNames(t.Context())
	for name := range streams.Name() {
		t.Errorf("doctor has created the stream %q", name)
	}
	if err := streams.Err(); err != nil {
		t.Error(err)
	}
}
