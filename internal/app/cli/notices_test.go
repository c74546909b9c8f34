package cli

import (
	"bytes"
	"errors"
	"testing"
)

// Each warning is printed once until the connection is back; progress is printed whenever it changes.
func TestNotices(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	n := &notices{out: &out}
	log := n.logger()
	log.Info("waiting for the server", "detail", "downloading")
	log.Info("waiting for the server", "detail", "starting")
	if n.reset() {
		t.Error("progress counts as a broken connection")
	}
	for range 3 {
		log.Warn("event stream broken", "error", errors.New("a\x1bb"), "session_id", "s")
	}
	log.Debug("no one reads this")
	if !n.reset() || n.reset() {
		t.Error("a broken connection is not reported once")
	}
	log.Warn("event stream broken", "error", errors.New("again"))
	const want = "waiting for the server: downloading\nwaiting for the server: starting\nevent stream broken: a␛b\n" +
		"event stream broken: again\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
