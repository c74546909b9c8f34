package fakecli

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// DefaultBacklog is how much output may wait before turns pause.
const DefaultBacklog = 64 << 20

// Options configures a CLI.
type Options struct {
	Script Script
	// Home is COPILOT_HOME: sessions are saved under it and can be resumed by another CLI. With an empty Home they stay
	// in memory, for this CLI only.
	Home string
	// Token must be the token in connect on TCP connections.
	Token string
	// Oracle, if set, gets each log entry as a line of JSON.
	Oracle io.Writer
	// Exit is called when the process would end; default: nothing more than
	// that all connections break.
	Exit func(code int)
	// Backlog is how many bytes may wait on a connection before turns pause.
	Backlog int
	// Now is the clock of timestamps.
	Now func() time.Time
}

// CLI is one fake process.
type CLI struct {
	opts   Options
	oracle *oracle
	prefix string // of ids, unique to this process

	// mu orders everything: what is emitted under it leaves every connection
	// in the same order. Nothing blocks under it.
	mu         sync.Mutex
	conns      map[*conn]struct{}
	sessions   map[string]*session // loaded ones
	archive    archive
	foreground string
	lastID     string
	ids        uint64
	struck     []int // requests seen, by fault
	used       []int // answers given, by prompt
	stopping   bool
	dead       bool
	exitCode   int

	gone  chan struct{}
	tasks sync.WaitGroup
}

// New starts a fake process. Close ends it. It panics on a script with names
// that mean nothing.
func New(o Options) *CLI {
	if err := o.Script.validate(); err != nil {
		panic("fakecli: " + err.Error())
	}
	if o.Script.Version == "" {
		o.Script.Version = DefaultVersion
	}
	if o.Script.Protocol == 0 {
		o.Script.Protocol = DefaultProtocol
	}
	if o.Backlog == 0 {
		o.Backlog = DefaultBacklog
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Exit == nil {
		o.Exit = func(int) {}
	}
	var salt [6]byte
	_, _ = rand.Read(salt[:]) // never fails
	return &CLI{
		opts:     o,
		oracle:   newOracle(o.Oracle, o.Now),
		prefix:   hex.EncodeToString(salt[:4]) + "-" + hex.EncodeToString(salt[4:]) + "-4000-8000-",
		conns:    map[*conn]struct{}{},
		sessions: map[string]*session{},
		archive:  archive{home: o.Home, kept: map[string][]stored{}},
		struck:   make([]int, len(o.Script.Faults)),
		used:     make([]int, len(o.Script.Prompts)),
		gone:     make(chan struct{}),
	}
}

// Connect returns the client's end of a new in-process connection. It has a
// CloseWrite method, as a child's stdin can be closed on its own.
func (c *CLI) Connect() io.ReadWriteCloser {
	mine, theirs := newPipe()
	c.tasks.Go(func() { c.Serve(mine, false) })
	return theirs
}

// Serve runs one connection until it ends. tcp chooses the rules of the TCP
// form: a token, and a bad header ends the connection.
func (c *CLI) Serve(rwc io.ReadWriteCloser, tcp bool) {
	k := newConn(c, rwc, tcp)
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		_ = rwc.Close()
		return
	}
	c.conns[k] = struct{}{}
	c.mu.Unlock()
	k.serve()
}

// Log returns what happened so far, in order.
func (c *CLI) Log() []Entry { return c.oracle.snapshot() }

// Exited is closed when the process has ended, also after Kill or Close.
func (c *CLI) Exited() <-chan struct{} { return c.gone }

// ExitCode is the code it ended with.
func (c *CLI) ExitCode() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exitCode
}

// Kill ends the process as SIGKILL does: connections break, and nothing is sent or written any more.
func (c *CLI) Kill() { c.exit(137) }

// Shutdown ends it as runtime.shutdown and SIGTERM do: sessions are closed and
// their last events written and sent.
func (c *CLI) Shutdown() {
	c.mu.Lock()
	c.stopping = true
	for _, s := range c.sessions {
		s.unload()
	}
	conns := make([]*conn, 0, len(c.conns))
	for k := range c.conns {
		conns = append(conns, k)
	}
	c.mu.Unlock()
	for _, k := range conns {
		k.flush()
	}
	c.exit(0)
}

// Close kills the process and waits for its goroutines.
func (c *CLI) Close() {
	c.Kill()
	c.tasks.Wait()
}

func (c *CLI) exit(code int) {
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return
	}
	c.dead, c.exitCode = true, code
	for _, s := range c.sessions {
		s.stop(errUnloaded)
		s.file.close()
	}
	for k := range c.conns {
		k.drop()
	}
	close(c.gone)
	c.mu.Unlock()
	c.opts.Exit(code)
}

// Emit sends an event of the test's own in a loaded session, and returns its
// id; empty if there is no such session.
func (c *CLI) Emit(sessionID string, e Event) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[sessionID]
	if s == nil {
		return ""
	}
	return s.emit(e.Type, orEmpty(e.Data), e.Ephemeral)
}

// Strike applies a fault to every connection now.
func (c *CLI) Strike(f Fault) {
	c.mu.Lock()
	conns := make([]*conn, 0, len(c.conns))
	for k := range c.conns {
		conns = append(conns, k)
	}
	c.mu.Unlock()
	for _, k := range conns {
		k.misbehave(f, "")
	}
}

// newID returns an id in the form the real CLI uses. The lock is held.
func (c *CLI) newID() string {
	c.ids++
	return fmt.Sprintf("%s%012x", c.prefix, c.ids)
}

// notifyAll sends a notification to every connection. The lock is held.
func (c *CLI) notifyAll(method string, params []byte) {
	c.oracle.add(Entry{Kind: EntryNotification, Type: method, Body: params})
	f := frame(notification(method, params))
	for k := range c.conns {
		k.out.push(f)
	}
}

func notification(method string, params []byte) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","method":"`), method...)
	b = append(b, `","params":`...)
	b = append(b, params...)
	return append(b, '}')
}

// fault returns the fault that strikes a request, if any. The lock is held.
func (c *CLI) fault(method string) *Fault {
	for i := range c.opts.Script.Faults {
		f := &c.opts.Script.Faults[i]
		if f.Method != "" && f.Method != method {
			continue
		}
		n := c.struck[i]
		c.struck[i]++
		if n >= f.After && (f.Times == 0 || n < f.After+f.Times) {
			return &f.Fault
		}
	}
	return nil
}

// turnsFor finds what the script says to a prompt. The lock is held.
func (c *CLI) turnsFor(text string) []Turn {
	for i := range c.opts.Script.Prompts {
		p := &c.opts.Script.Prompts[i]
		if strings.Contains(text, p.Match) && (p.Times == 0 || c.used[i] < p.Times) {
			c.used[i]++
			return p.Turns
		}
	}
	return []Turn{{Text: "You said: " + text}}
}
