package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
)

// ProtocolVersion is the supported version of the CLI's protocol.
const ProtocolVersion = 3

// Error codes of a CLI server's reply to connect.
const (
	codeAuthRequired      = -32001
	codeAuthFailed        = -32002
	codeAuthNotConfigured = -32003
)

type connectParams struct {
	Token     string   `json:"token,omitempty"`
	Telemetry bool     `json:"enableGitHubTelemetryForwarding,omitempty"`
	TaskKinds []string `json:"supportedTaskKinds,omitempty"`
}

// taskKinds are the supported kinds of background tasks. A connection that does not list "client" cannot have its own
// tasks.
var taskKinds = []string{"agent", "shell", "client"}

// greeting is the reply to connect. ping and status.get return parts of it.
type greeting struct {
	ProtocolVersion int      `json:"protocolVersion"`
	Version         string   `json:"version"`
	TaskKinds       []string `json:"taskKinds"`
	// text is the complete reply.
	text json.RawMessage
}

// handshake calls connect and validates the reply.
func handshake(ctx context.Context, conn *rpcconn.Conn, p connectParams) (greeting, error) {
	params, err := json.Marshal(p)
	if err != nil {
		return greeting{}, err
	}
	g, err := ask(ctx, conn, "connect", params)
	var reply *rpcconn.Error
	if errors.As(err, &reply) {
		switch reply.Code {
		case codeAuthRequired, codeAuthFailed:
			return g, fault.Wrap(err, fault.RuntimeAuthFailed,
				"the copilot server refused the connection token: check that both have the same one")
		case codeAuthNotConfigured:
			return g, fault.Wrap(err, fault.RuntimeAuthFailed,
				"the bridge has a connection token, but the copilot server has none")
		case rpcconn.CodeMethodNotFound:
			g, err = greetOld(ctx, conn)
		}
	}
	if err != nil {
		return g, err
	}
	if g.ProtocolVersion != ProtocolVersion {
		return g, fault.New(fault.CLIUnsupported, "the copilot CLI %q speaks protocol %d, this bridge speaks %d",
			g.Version, g.ProtocolVersion, ProtocolVersion).With("cli_version", g.Version)
	}
	return g, nil
}

// greetOld collects the data from a CLI without connect. connect was added with the protocol version, so mostly this
// serves to refuse the CLI with a clear error.
func greetOld(ctx context.Context, conn *rpcconn.Conn) (greeting, error) {
	g, err := ask(ctx, conn, "ping", []byte("{}"))
	if err != nil {
		return g, err
	}
	status, err := ask(ctx, conn, "status.get", []byte("{}"))
	var reply *rpcconn.Error
	if err != nil && !errors.As(err, &reply) {
		return g, err
	}
	g.Version = status.Version
	return g, nil
}

func ask(ctx context.Context, conn *rpcconn.Conn, method string, params []byte) (g greeting, err error) {
	result, err := conn.Call(ctx, method, params, rpcconn.Priority())
	if err != nil {
		return g, err
	}
	if err := json.Unmarshal(result, &g); err != nil {
		return g, fault.Wrap(err, fault.CLIProtocolError, "the CLI's reply to %q violates the protocol", method)
	}
	g.text = result
	return g, nil
}

// checkVersion returns an error for an untested CLI version, unless any is permitted.
func checkVersion(version string, allowAny bool) *fault.Error {
	support := clibin.SupportOf(version)
	if support == clibin.Supported || allowAny {
		return nil
	}
	said := fmt.Sprintf("version %q of the copilot CLI", version)
	switch {
	case version == "":
		said = "a copilot CLI that does not report its version"
	case support == clibin.Newer:
		said += ", which is newer than every tested version,"
	}
	return fault.New(fault.CLIUnsupported, "%s is not supported; install one from %s to %s "+
		"(npm install -g @github/copilot@%s), or allow this one with --any-cli",
		said, clibin.OldestVersion, clibin.PinnedVersion, clibin.PinnedVersion).With("cli_version", version)
}
