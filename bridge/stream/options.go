package stream

import (
	"cmp"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	defaultHeartbeat = 30 * time.Second
	maxBatchDelay    = 100 * time.Millisecond
)

// Heartbeat checks the interval of heartbeats; an unset one is 30 s.
func Heartbeat(d *durationpb.Duration, field string) (time.Duration, error) {
	every, err := fields.Duration(d, field, time.Second, 10*time.Minute)
	return cmp.Or(every, defaultHeartbeat), err
}

// Options are StreamOptions that have been checked.
type Options struct {
	form       journal.Form
	heartbeat  time.Duration
	batchDelay time.Duration
}

// ParseOptions checks the options of a stream.
func ParseOptions(o *bridgev1.StreamOptions) (out Options, err error) {
	if err := fields.Known(o.GetFidelity(), "options.fidelity"); err != nil {
		return out, err
	}
	out.form = form(o.GetFidelity(), o.GetOriginalJson())
	if out.heartbeat, err = Heartbeat(o.GetHeartbeatInterval(), "options.heartbeat_interval"); err != nil {
		return out, err
	}
	out.batchDelay, err = fields.Duration(o.GetBatchDelay(), "options.batch_delay", 0, maxBatchDelay)
	return out, err
}

func form(f bridgev1.Fidelity, original bool) journal.Form {
	exact := f == bridgev1.Fidelity_FIDELITY_EXACT
	switch {
	case exact && original:
		return journal.ExactOriginal
	case exact:
		return journal.Exact
	case original:
		return journal.TidyOriginal
	}
	return journal.Tidy
}
