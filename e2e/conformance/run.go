package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	conformancev1 "github.com/copilot-grpc/copilot-grpc/e2e/conformance/conformancev1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// Transports of the matrix. The web is only for TypeScript.
const (
	Unix = "unix"
	TLS  = "tls"
	Web  = "web"
)

// Environment is what cases run in: folders, the server's program, and one real server for a version of the CLI.
type Environment struct {
	folder      string
	binary, cli string
	certificate *certificate
	real        *realServer
	sockets     atomic.Int64
}

// NewEnvironment starts the server, unless cli is empty: then only cases with wire scripts can run.
func NewEnvironment(ctx context.Context, binary, cli string) (*Environment, error) {
	folder, err := os.MkdirTemp("", "conf") // short: it is in the paths of sockets
	if err != nil {
		return nil, err
	}
	e := &Environment{folder: folder, binary: binary, cli: cli}
	if e.certificate, err = newCertificate(folder); err == nil && cli != "" {
		e.real, err = startReal(ctx, binary, cli, folder, e.certificate)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Close ends the server.
func (e *Environment) Close() error {
	var err error
	if e.real != nil {
		err = e.real.close()
	}
	return errors.Join(err, os.RemoveAll(e.folder))
}

// CertificateFile is the file with the certificate that signs those of all servers.
func (e *Environment) CertificateFile() string { return e.certificate.caFile }

// Run runs a case with a driver, and returns how the library differs from what the case expects.
func (e *Environment) Run(ctx context.Context, d *driver, c *Case, transport string) error {
	message := &conformancev1.Case{Name: c.Name}
	for _, s := range c.steps {
		message.Steps = append(message.Steps, proto.CloneOf(s.action))
	}
	if c.log != nil { // a process of its own, so that all it writes belongs to the case
		_ = d.stop(true) // at once: a library may still try to leave sessions of servers that are gone
	}
	run := e.runScripted
	if c.Real() {
		run = e.runReal
	}
	err := run(ctx, d, c, message, transport)
	if err != nil || c.log == nil {
		return err
	}
	return errors.Join(d.stop(false), c.checkLog(d.stderr.String()))
}

// checkLog compares what a driver wrote to its standard error with what the case expects.
func (c *Case) checkLog(text string) error {
	for _, line := range c.log {
		if !line.MatchString(text) {
			return fmt.Errorf("the log has nothing like %q: %q", line, text)
		}
	}
	return nil
}

// serverFor is the server that a case runs with, and what ends it.
func (e *Environment) serverFor(ctx context.Context, c *Case) (*realServer, func() error, error) {
	if !c.OwnServer {
		return e.real, func() error { return nil }, nil
	}
	folder, err := os.MkdirTemp(e.folder, "o")
	if err != nil {
		return nil, nil, err
	}
	s, err := startReal(ctx, e.binary, e.cli, folder, e.certificate)
	if err != nil {
		return nil, nil, err
	}
	return s, s.close, nil
}

func (e *Environment) runReal(
	ctx context.Context, d *driver, c *Case, message *conformancev1.Case, transport string,
) (err error) {
	model, err := startModel(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeModel(model)) }()
	server, end, err := e.serverFor(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	work, err := os.MkdirTemp(filepath.Join(server.folder, "work"), "case")
	if err != nil {
		return err
	}
	if err := c.writeFiles(work); err != nil {
		return err
	}
	network, address := "unix", server.socket
	if transport != Unix {
		network, address = "tcp", server.tcp
	}
	listener, err := e.listen(network)
	if err != nil {
		return err
	}
	p := newProxy(listener, network, address)
	defer p.close()
	message.Endpoint = e.endpoint(transport, listener)
	if transport == Web {
		message.Endpoint.WebUrl = "https://" + server.web
	}
	for _, s := range message.Steps {
		prepare(s, model, work)
	}
	result, err := d.run(ctx, message, func(ctx context.Context, name string) error {
		if ask, ok := strings.CutPrefix(name, "ask "); ok {
			return server.ask(ctx, c.Asks[ask], work)
		}
		if c.OwnServer && server.controls[name] != nil {
			return server.controls[name](ctx)
		}
		return e.control(ctx, p, model, name)
	})
	if err != nil {
		return err
	}
	return c.check(result)
}

func closeModel(model *offlinemodel.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return model.Close(ctx)
}

// control does what a driver asks for in a case of the real server: "cut", or "gate NAME", which waits until the
// model is at the gate, or "open NAME", which opens it.
func (e *Environment) control(ctx context.Context, p *proxy, model *offlinemodel.Server, name string) error {
	what, gate, _ := strings.Cut(name, " ")
	switch {
	case name == "cut":
		p.cut()
	case what == "gate":
		return model.WaitGate(ctx, gate)
	case what == "open":
		model.Release(gate)
	default:
		return fmt.Errorf("the case has an unknown control %q", name)
	}
	return nil
}

// writeFiles makes the case's files in its working directory.
func (c *Case) writeFiles(work string) error {
	for name, text := range c.Files {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// prepare fills in the model and the folder of a session that is created, resumed or opened, and the folder of a
// prompt's files.
func prepare(step *conformancev1.Step, model *offlinemodel.Server, work string) {
	for _, attachment := range step.GetSendAndWait().GetAttachments() {
		if path := attachment.GetPath(); path != "" {
			attachment.Source = &conformancev1.Attachment_Path{Path: filepath.Join(work, path)}
		}
	}
	open := step.GetOpen()
	if open == nil || open.GetHow() == conformancev1.Open_JOIN || open.GetHow() == conformancev1.Open_HANDLE {
		return
	}
	if open.Provider == nil {
		open.Provider = &conformancev1.Provider{}
	}
	open.Provider.BaseUrl, open.Provider.Model = model.OpenAIBaseURL(), offlinemodel.DefaultModel
	open.WorkingDirectory = work
}

func (e *Environment) endpoint(transport string, listener net.Listener) *conformancev1.Endpoint {
	if transport == Unix {
		return &conformancev1.Endpoint{Target: "unix:" + listener.Addr().String()}
	}
	return &conformancev1.Endpoint{Target: listener.Addr().String(), CaFile: e.certificate.caFile, Token: token}
}

func (e *Environment) listen(network string) (net.Listener, error) {
	if network == "unix" {
		return net.Listen("unix", filepath.Join(e.folder, fmt.Sprintf("p%d", e.sockets.Add(1))))
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

func (e *Environment) runScripted(
	ctx context.Context, d *driver, c *Case, message *conformancev1.Case, transport string,
) (err error) {
	network, opts := "unix", []grpc.ServerOption(nil)
	if transport != Unix {
		creds, err := credentials.NewServerTLSFromFile(e.certificate.certFile, e.certificate.keyFile)
		if err != nil {
			return err
		}
		network, opts = "tcp", append(opts, grpc.Creds(creds))
	}
	outer, err := e.listen(network)
	if err != nil {
		return err
	}
	message.Endpoint = e.endpoint(transport, outer)
	if err := e.tokenFile(message); err != nil {
		return err
	}
	control := func(context.Context, string) error { return nil }
	if c.Foreign != "" {
		foreign := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
		go func() { _ = e.serveForeign(foreign, outer, transport) }()
		defer func() { err = errors.Join(err, foreign.Close()) }()
	} else {
		inner, err := e.listen(network)
		if err != nil {
			return err
		}
		s := startScripted(c.Wire, outer, inner, opts...)
		defer func() { err = errors.Join(err, s.close()) }()
		control = func(ctx context.Context, name string) error { return e.scriptedControl(ctx, s, message, name) }
	}
	result, err := d.run(ctx, message, control)
	if err != nil {
		return err
	}
	return c.check(result)
}

func (e *Environment) serveForeign(s *http.Server, l net.Listener, transport string) error {
	if transport == Unix {
		return s.Serve(l)
	}
	s.TLSNextProto = nil
	return s.ServeTLS(l, e.certificate.certFile, e.certificate.keyFile)
}

// tokenFile makes the files of tokens that the steps name: their first content is "token-1".
func (e *Environment) tokenFile(message *conformancev1.Case) error {
	for _, s := range message.Steps {
		connect := s.GetConnect()
		if connect.GetTokenFile() == "" {
			continue
		}
		connect.TokenFile = filepath.Join(e.folder, connect.GetTokenFile())
		if err := os.WriteFile(connect.GetTokenFile(), []byte("token-1\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// scriptedControl does what a driver asks for: "rotate" writes another token, "finish" waits for the end of the
// scripts, and all else is for the scripts.
func (e *Environment) scriptedControl(
	ctx context.Context, s *scripted, message *conformancev1.Case, name string,
) error {
	switch name {
	case "rotate":
	case "finish":
		s.finish(ctx)
		return nil
	default:
		s.control(name)
		return nil
	}
	for _, step := range message.Steps {
		if file := step.GetConnect().GetTokenFile(); file != "" {
			next := file + ".next"
			if err := os.WriteFile(next, []byte("token-2, which is longer\n"), 0o600); err != nil {
				return err
			}
			return os.Rename(next, file)
		}
	}
	return errors.New("no step has a token file")
}

// check compares a result with what the case expects.
func (c *Case) check(result *conformancev1.Result) error {
	if len(result.GetSteps()) != len(c.steps) {
		return fmt.Errorf("the driver reports %d steps of %d", len(result.GetSteps()), len(c.steps))
	}
	var problems []error
	for i, s := range c.steps {
		got, err := asJSON(result.GetSteps()[i])
		if err != nil {
			return err
		}
		if e := result.GetSteps()[i].GetError(); e.GetKind() == conformancev1.Error_UNSUPPORTED {
			return fmt.Errorf("unsupported: %s", e.GetMessage())
		}
		want := map[string]any{"error": nil}
		for key, value := range s.expect {
			want[key] = value
		}
		if d := differ(fmt.Sprintf("step %d", i), want, got); d != "" {
			return errors.New(d) // the following ones depend on it
		}
	}
	calls, connection := []any{}, []any{}
	for _, o := range result.GetObservations() {
		value, err := asJSON(o)
		if err != nil {
			return err
		}
		switch o.GetKind() {
		case "connection":
			connection = append(connection, o.GetName())
		case "events": // of the step itself
		default:
			calls = append(calls, value)
		}
	}
	want := c.observations
	if want == nil {
		want = []any{}
	}
	problems = append(problems, differing("observations", want, calls))
	if c.connection != nil {
		problems = append(problems, differing("connection", c.connection, slices.Compact(connection)))
	}
	return errors.Join(problems...)
}

func differing(path string, want, got any) error {
	if d := differ(path, want, got); d != "" {
		return errors.New(d)
	}
	return nil
}
