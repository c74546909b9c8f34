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

// ProtocolVersion is the version of the CLI's protocol that we speak.
const ProtocolVersion = 3

// Codes with which a CLI server answers connect.
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

// taskKinds are the kinds of background tasks that we understand. A connection that does
// not name "client" cannot have tasks of its own.
var taskKinds = []string{"agent", "shell", "client"}

// greeting is what connect answers; ping and status.get answer parts of it.
type greeting struct {
	ProtocolVersion int      `json:"protocolVersion"`
	Version         string   `json:"version"`
	TaskKinds       []string `json:"taskKinds"`
	// text is the whole of it.
	text json.RawMessage
}

// handshake introduces us and judges the answer.
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
			return g, fault.Wrap(err, fault.RuntimeAuthFailed, "the copilot server refused our connection token")
		case codeAuthNotConfigured:
			return g, fault.Wrap(err, fault.RuntimeAuthFailed, "the copilot server has no connection token, but we were given one")
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

// greetOld gets from a CLI without connect what there is to know. connect came
// with the protocol, so this mostly serves to refuse it in clear words.
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
		return g, fault.Wrap(err, fault.CLIProtocolError, "the answer to %q is not what the protocol says", method)
	}
	g.text = result
	return g, nil
}

// checkVersion refuses a version of the CLI that was not tested, unless any is allowed.
func checkVersion(version string, allowAny bool) *fault.Error {
	support := clibin.SupportOf(version)
	if support == clibin.Supported || allowAny {
		return nil
	}
	said := fmt.Sprintf("version %q of the copilot CLI", version)
	switch {
	case version == "":
		said = "a copilot CLI that does not tell its version"
	case support == clibin.Newer:
		said += ", which is newer than any that was tested,"
	}
	return fault.New(fault.CLIUnsupported, "%s is not supported; install one from %s to %s "+
		"(npm install -g @github/copilot@%s), or allow this one with --any-cli",
		said, clibin.OldestVersion, clibin.PinnedVersion, clibin.PinnedVersion).With("cli_version", version)
}
