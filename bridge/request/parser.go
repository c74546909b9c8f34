// Package request reads the requests of callers that open sessions, send prompts and change
// providers, and gives them the CLI's form. It is pure: it has no lock, clock or goroutine.
package request

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
)

// Config has what a parser uses of the bridge.
type Config struct {
	Codec *wire.Codec
	// Defaults are members of the configuration of sessions that do not set them.
	Defaults jsonobj.Object
	// Providers returns the server's model providers that a tenant's sessions may name.
	Providers func(tenant string) session.Providers
	// Ambient reports whether a tenant's sessions begin with the CLI's own tools, instructions and
	// discovery.
	Ambient func(tenant string) bool
	// NodeLabels are the labels of this server.
	NodeLabels map[string]string
	// CheckPrompt checks the size of a prompt. field is its path in the request.
	CheckPrompt func(tenant string, size int, field string) error
}

// Parser reads requests. It is safe for concurrent use.
type Parser struct{ cfg Config }

// New returns a parser.
func New(c Config) *Parser { return &Parser{cfg: c} }
