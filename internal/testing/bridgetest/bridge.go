package bridgetest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// Options are what a Bridge is made with. The members of Config are those of the bridge; New sets Runtimes.
type Options struct {
	bridge.Config

	t          *testing.T
	restarts   bool
	script     func(process int) fakecli.Script
	home, data string
	directory  *store.Store
	now        func() time.Time
	connection func(io.ReadWriteCloser) io.ReadWriteCloser
}

// Option sets options. A function that sets members of Config is one.
type Option = func(*Options)

// Restarts has a process of the fake CLI started whenever the bridge needs one. All processes have one history.
// Without it, all of the bridge's connections are to one fake CLI, which never ends.
func Restarts(o *Options) { o.restarts = true }

// Scripts is Restarts with a script for each process of the fake CLI, from number 0.
func Scripts(script func(process int) fakecli.Script) Option {
	return func(o *Options) { o.restarts, o.script = true, script }
}

// Home is Restarts with the history that the fake CLIs of another bridge have in a directory.
func Home(dir string) Option {
	return func(o *Options) { o.restarts, o.home = true, dir }
}

// Stored is Restarts with a data directory, which is empty at first.
func Stored(o *Options) { o.open("") }

// Now gives the fake CLIs, which must restart, a clock.
func Now(now func() time.Time) Option {
	return func(o *Options) { o.now = now }
}

// Connection wraps the bridge's connections to the fake CLI, which must not restart.
func Connection(wrap func(io.ReadWriteCloser) io.ReadWriteCloser) Option {
	return func(o *Options) { o.connection = wrap }
}

// Tenants gives a bridge the tenants a and b, each with the limits.
func Tenants(limits quota.Limits) Option {
	return func(o *Options) {
		o.Tenant = func(name string) (tenancy.Tenant, bool) {
			t := tenancy.Tenant{Limits: limits}
			t.Profile.Tenant = name
			return t, name == "a" || name == "b"
		}
	}
}

// open gives the bridge a data directory unless it has one. An empty name is that of a new directory.
func (o *Options) open(data string) {
	o.t.Helper()
	o.restarts = true
	if o.directory != nil {
		return
	}
	if data == "" {
		data = o.t.TempDir()
	}
	directory, err := store.Open(store.Config{Dir: data, Journals: journal.WriterConfig{}})
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = directory.Close() }) // after the bridge
	o.data, o.directory, o.Directory = data, directory, directory
}

// Bridge is a bridge on a fake CLI. Its methods may be called from any goroutine, but those that fail the test.
type Bridge struct {
	*bridge.Bridge

	T *testing.T
	// Home is the directory with the CLI's history, if the fake CLI restarts.
	Home string
	// Data is the data directory of a bridge with Stored, and Directory what it is opened as.
	Data      string
	Directory *store.Store

	processes *processes
	script    fakecli.Script
	options   []Option
	// readers are waited for before the bridge closes.
	readers sync.WaitGroup
	ctx     context.Context
	end     context.CancelFunc
}

// New makes a bridge, which closes when the test ends. Its fake CLI has the script, unless there are Scripts.
func New(t *testing.T, script fakecli.Script, options ...Option) *Bridge {
	t.Helper()
	o := &Options{
		t: t, script: func(int) fakecli.Script { return script }, Config: bridge.Config{Version: "test"},
		connection: func(c io.ReadWriteCloser) io.ReadWriteCloser { return c },
	}
	for _, set := range options {
		set(o)
	}
	b := &Bridge{T: t, Data: o.data, Directory: o.directory, script: script, options: options}
	b.ctx, b.end = context.WithCancel(context.Background())
	if o.restarts {
		if o.home == "" {
			o.home = t.TempDir()
		}
		b.Home = o.home
	}
	b.processes = newProcesses(o)
	o.Runtimes = b.processes.supervise
	var err error
	if b.Bridge, err = bridge.New(o.Config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.end()
		b.readers.Wait()
		b.processes.stop(context.WithoutCancel(t.Context()))
		b.Close()
	})
	return b
}

// Context is the context of the bridge's streams, which ends before the bridge closes.
func (b *Bridge) Context() context.Context { return b.ctx }

// Spawn runs f, which must end with Context, in a goroutine that is waited for before the bridge closes.
func (b *Bridge) Spawn(f func()) { b.readers.Go(f) }

// FakeCLI is the newest process of the fake CLI.
func (b *Bridge) FakeCLI() *fakecli.CLI {
	all := b.processes.started()
	return all[len(all)-1].CLI
}

// Processes are the processes of the fake CLI that were started, in order.
func (b *Bridge) Processes() []Process { return b.processes.started() }

// Restart is the bridge that comes after a crash of b, which has Stored: the data directory is as it is at this
// moment, and the processes of the CLI have ended. It has the options of b after those that are given. b must not be
// used any more.
func (b *Bridge) Restart(options ...Option) *Bridge {
	b.T.Helper()
	data := filepath.Join(b.T.TempDir(), "data")
	b.CopyData(data)
	b.Drain(0) // what has crashed loads nothing again
	if len(b.Processes()) > 0 {
		b.FakeCLI().Kill()
	}
	return b.Reopen(data, options...)
}

// Reopen is a further bridge with the options of b, on another data directory and the history of the same CLI.
func (b *Bridge) Reopen(data string, options ...Option) *Bridge {
	b.T.Helper()
	first := func(o *Options) {
		o.home = b.Home
		o.open(data)
	}
	return New(b.T, b.script, slices.Concat([]Option{first}, options, b.options)...)
}

// CopyData copies the data directory as it is, without files that come and go meanwhile.
func (b *Bridge) CopyData(data string) {
	b.T.Helper()
	err := filepath.WalkDir(b.Data, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		to := filepath.Join(data, strings.TrimPrefix(path, b.Data))
		if e.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o600)
	})
	if err != nil {
		b.T.Fatal(err)
	}
}

// MoveEvents moves the events in a data directory that nobody uses to the journals of their sessions, as the end of a server
// does.
func MoveEvents(t testing.TB, data string) {
	t.Helper()
	kept, err := store.Open(store.Config{Dir: data})
	if err == nil {
		err = kept.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
