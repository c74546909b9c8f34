package session

import (
	"context"
	"errors"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// ErrNotAdmitted says that a runtime accepts no more sessions: it is draining or being replaced.
var ErrNotAdmitted error = fault.New(fault.RuntimeLost, "the runtime stopped accepting sessions: try again")

// maxEnterings bounds how often a runtime is chosen for one load. Each further choice needs another drain meanwhile.
const maxEnterings = 5

// enter asks the host for a runtime and calls open, which creates or loads the session in it. If the runtime stops
// accepting sessions before the session is routed there, enter asks for another one. The caller holds the lifecycle lock.
func (l *Loader) enter(ctx context.Context, open func(rt Runtime) error) (rt Runtime, err error) {
	for range maxEnterings {
		if rt, err = l.s.host.Runtime(ctx); err != nil {
			return nil, err
		}
		if err = open(rt); !errors.Is(err, ErrNotAdmitted) {
			break
		}
	}
	return rt, err
}
