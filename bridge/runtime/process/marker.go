package process

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
)

// MarkerEnv is the environment variable that identifies the descendants of a child. Its value is unique to the child
// and names its owner: <pid namespace>-<owner pid>-<owner start time>-<random>.
const MarkerEnv = "COPILOT_GRPC_RUNTIME"

func newMarker() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // documented never to fail
	return fmt.Sprintf("%s-%s", owner(os.Getpid()), hex.EncodeToString(id[:]))
}
