package cluster

import (
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/app/cli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

// The environment that makes this program a replica or a fake CLI.
const (
	replicaEnv = "CLUSTER_REPLICA"
	scriptEnv  = "FAKECOPILOT_SCRIPT"
	oracleEnv  = "FAKECOPILOT_ORACLE"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(natsEnv) != "":
		if err := runNATS(os.Getenv(natsEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case os.Getenv(diskEnv) != "":
		if err := holdDisk(os.Getenv(diskEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case os.Getenv(scriptEnv) != "":
		os.Exit(fakecli.Main(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
	case os.Getenv(replicaEnv) != "":
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // until the test's process has ended
			os.Exit(1)
		}()
		os.Exit(cli.Main("chaos", os.Args[1:]))
	}
	leak.Main(m)
}
