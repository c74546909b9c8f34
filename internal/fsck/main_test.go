package fsck_test

import (
	"os"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

// writeEnv names the directory in which a process of this test program writes until it is killed.
const writeEnv = "FSCK_TEST_WRITE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writeEnv); dir != "" {
		writeForever(dir)
	}
	leak.Main(m)
}
