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

// handshake calls connect and validates the protocol.
func handshake(ctx context.Context, conn *rpcconn.Conn, p connectParams, peer Peer) (greeting, error) {
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
		return g, fault.New(fault.CLIUnsupported, "version %q of the copilot CLI speaks protocol %d, this server speaks %d",
			g.Version, g.ProtocolVersion, ProtocolVersion).With("cli_version", g.Version).
			WithRemedy("%s", peer.useTested())
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

// noVersion is said of a program that may be no CLI at all.
const noVersion = "the program does not report the version of a copilot CLI"

// checkVersion returns an error for a CLI that is too old, and with testedOnly also for one that is too new. A CLI that
// reports no version is too old.
func checkVersion(version string, testedOnly bool, peer Peer) *fault.Error {
	support := clibin.SupportOf(version)
	var err *fault.Error
	switch {
	case support == clibin.Supported, support == clibin.Newer && !testedOnly:
		return nil
	case version == "":
		err = fault.New(fault.CLIUnsupported, noVersion)
	case support == clibin.Newer:
		err = fault.New(fault.CLIUnsupported, "%s, and --tested-cli-only is set", newerText(version))
	default:
		err = fault.New(fault.CLIUnsupported, "version %q of the copilot CLI is not supported: the oldest that is, is %s",
			version, clibin.OldestVersion)
	}
	return err.With("cli_version", version).WithRemedy("%s", peer.useTested())
}

// newerText says that a version is newer than the tested ones.
func newerText(version string) string {
	return fmt.Sprintf("version %s of the copilot CLI is newer than %s, the newest that was tested with this server",
		version, clibin.PinnedVersion)
}

// newerWarning returns the warning about a CLI whose version is newer than the tested ones; not ok if it is not newer.
func newerWarning(version string, peer Peer) (f Finding, ok bool) {
	f = Finding{Level: LevelWarning, Subject: cliSubject, Text: newerText(version),
		Remedy: "none needed"}
	if peer.Owned {
		f.Remedy = "none needed; to use a tested version, " + peer.useTested()
	}
	return f, clibin.SupportOf(version) == clibin.Newer
}

// untested says what is known of an executable that was not tested with this server; "" if it was tested, or is unknown.
func (p Peer) untested() string {
	switch {
	case p.Path == "":
	case p.Version == "":
		return noVersion
	case clibin.SupportOf(p.Version) == clibin.Newer:
		return newerText(p.Version)
	}
	return ""
}

// useTested returns the remedy for a CLI whose version or protocol is refused.
func (p Peer) useTested() string {
	if p.Address != "" && !p.Owned {
		return fmt.Sprintf("run version %s at %s", clibin.PinnedVersion, p.Address)
	}
	return clibin.UseTested(p.Source)
}
