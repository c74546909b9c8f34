package runtime

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
)

// connectionTokenEnv sets the token that clients of a CLI server must present.
const connectionTokenEnv = "COPILOT_CONNECTION_TOKEN"

// portLine is the prefix of the line in which a CLI server reports its port.
const portLine = "CLI server listening on port "

// noInputGrace is for a CLI server, which does not end when its input ends.
const noInputGrace = time.Millisecond

// maxPreamble bounds the output of a CLI server before it listens.
const maxPreamble = 64 << 10

// multiplexed is a Transport whose CLI accepts additional connections.
type multiplexed interface {
	// Another opens another stream to the same CLI.
	Another(ctx context.Context) (io.ReadWriteCloser, error)
}

// listening is the Transport to a child that listens: its first connection. The child ends with this connection.
type listening struct {
	net.Conn
	process *process.Process
	peer    Peer
	done    chan struct{}
}

// startListening starts a private CLI server of an executable and connects to it.
func startListening(ctx context.Context, o process.Options, from *launch) (*listening, error) {
	token := rand.Text()
	o.Env = append(o.Env, connectionTokenEnv+"="+token)
	if o.InputGrace == 0 {
		o.InputGrace = noInputGrace
	}
	p, err := process.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	out := bufio.NewReader(p)
	port, err := readPort(ctx, p, out)
	var conn net.Conn
	if err == nil {
		conn, err = dialQuick(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	if err != nil {
		_ = p.Close()
		<-p.Done()
		if exit := p.Exit(); exit.Cause == nil || errors.Is(err, io.EOF) {
			err = errors.Join(err, exit)
		}
		return nil, err
	}
	l := &listening{Conn: conn, process: p, done: make(chan struct{}), peer: from.peer(p.PID())}
	l.peer.Address, l.peer.Token = conn.RemoteAddr().String(), token
	go l.own(out)
	return l, nil
}

// own reads the child's remaining output until it ends, because a full pipe would block the child.
func (l *listening) own(out io.Reader) {
	_, _ = io.Copy(io.Discard, out) // an error means that the child has ended
	<-l.process.Done()
	_ = l.Conn.Close()
	close(l.done)
}

// readPort waits until the child reports its port.
func readPort(ctx context.Context, p *process.Process, out *bufio.Reader) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, DefaultStartTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = p.Close() })
	defer stop()
	for read := 0; read < maxPreamble; {
		line, err := out.ReadString('\n')
		read += len(line)
		if number, ok := strings.CutPrefix(strings.TrimSpace(line), portLine); ok {
			return strconv.Atoi(number)
		}
		if err != nil {
			return 0, fmt.Errorf("the CLI did not report its port: %w", err)
		}
	}
	return 0, errors.New("the CLI did not report its port")
}

// Close closes the connection and ends the child.
func (l *listening) Close() error {
	err := l.Conn.Close()
	return errors.Join(err, l.process.Close())
}

// Another opens another connection to the child.
func (l *listening) Another(ctx context.Context) (io.ReadWriteCloser, error) {
	return dialQuick(ctx, l.peer.Address)
}

func (l *listening) Peer() Peer            { return l.peer }
func (l *listening) Done() <-chan struct{} { return l.done }
func (l *listening) StderrTail() string    { return l.process.StderrTail() }
func (l *listening) Exit() process.Exit    { return l.process.Exit() }
