package cli

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// Each warning is printed once until the connection is back; progress is printed whenever it changes.
func TestNotices(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	n := &notices{out: &out, patience: time.Minute}
	log := n.logger()
	log.Info("waiting for the server", "detail", "downloading")
	log.Info("waiting for the server", "detail", "starting")
	n.restored() // progress is no broken connection
	for range 3 {
		log.Warn("event stream broken", "error", errors.New("a\x1bb"), "session_id", "s")
	}
	log.Debug("no one reads this")
	n.restored()
	n.restored()
	log.Warn("event stream broken", "error", errors.New("again"))
	const want = "waiting for the server: downloading\nwaiting for the server: starting\n" +
		"event stream broken: a␛b; reconnecting for up to 1m\nreconnected\n" +
		"event stream broken: again; reconnecting for up to 1m\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
