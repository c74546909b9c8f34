// Package passthrough serves the methods of the CLI: copilot.cli.v1 and RawService. A call goes to
// the runtime of its session, or of a profile, unless a row of the table overrides says what the
// bridge does with the method. docs/methods.md shows the table.
//
// A Service has no lock and starts no goroutine.
package passthrough

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/operation"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/sending"
	"github.com/copilot-grpc/copilot-grpc/bridge/shell"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Runtime is a CLI process.
type Runtime interface {
	Call(ctx context.Context, method string, params []byte, opts ...rpcconn.CallOption) (json.RawMessage, error)
}

// Host finds and opens sessions and runtimes for callers.
type Host interface {
	// Open returns a session that the caller may use.
	Open(ctx context.Context, id string) (*session.Session, error)
	// Visible returns the sessions that the caller may use, in no order.
	Visible(ctx context.Context) []*session.Session
	// CheckNew refuses the id of a session that exists. CheckOwn refuses names of sessions of
	// another tenant and ids of a bad form.
	CheckNew(ctx context.Context, id string) error
	CheckOwn(ctx context.Context, id string) error
	// Create and Resume open a session in a runtime of the caller's tenant.
	Create(ctx context.Context, id string, o session.Opening) (*session.Session, error)
	Resume(ctx context.Context, id string, o session.Opening) (*session.Session, error)
	// Disconnect ends the use of a session unless other participants use it. Delete deletes it.
	Disconnect(ctx context.Context, id string) error
	Delete(ctx context.Context, id string) error
	// Forget removes a session that the CLI has deleted.
	Forget(s *session.Session)
	// CheckPrompt checks the size of a prompt. field is its path in the request.
	CheckPrompt(tenant string, size int, field string) error
	// Submit sends a prompt, if there is room for its turn.
	Submit(ctx context.Context, s *session.Session, m sending.Message) (sending.Sent, error)
	// Profile checks what a caller asks of a runtime.
	Profile(ctx context.Context, p *bridgev1.RuntimeProfile) (runtime.Profile, error)
	// Runtime returns the runtime in whose home the session of an id is; with an empty id the one of
	// a profile, nil for the tenant's default.
	Runtime(ctx context.Context, id string, p *runtime.Profile) (Runtime, error)
}

// Config has the parts that a service uses.
type Config struct {
	Host       Host
	Codec      *wire.Codec
	Operations *operation.Runner
	Shutdown   *shutdown.Coordinator
	Shells     *shell.Runner
	// Raw switches RawService on. Sole says that one program alone uses the CLI's processes.
	Raw, Sole bool
}

// Service serves the CLI's methods. It is safe for concurrent use.
type Service struct {
	host       Host
	codec      *wire.Codec
	operations *operation.Runner
	shutdown   *shutdown.Coordinator
	shells     *shell.Runner
	raw, sole  bool
	// parked counts the calls that wait in the CLI.
	parked quota.Gauge
}

// New returns a service.
func New(c Config) *Service {
	return &Service{
		host: c.Host, codec: c.Codec, operations: c.Operations, shutdown: c.Shutdown, shells: c.Shells,
		raw: c.Raw, sole: c.Sole,
	}
}
