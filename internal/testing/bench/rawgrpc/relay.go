package rawgrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"google.golang.org/grpc"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
)

const (
	// RelayMethod carries bytes to a CLI and back: the first message is its path.
	RelayMethod = "/raw.Relay/Relay"
	// KeepMethod is RelayMethod by a server that keeps the bridge's contract: what the CLI sends is in a file before it
	// is sent on, and the goroutine that reads the CLI does not wait for that.
	KeepMethod = "/raw.Relay/Keep"
	// CallMethod carries one JSON-RPC request to the CLI of the newest relay, and its response back.
	CallMethod = "/raw.Relay/Call"
)

// cliEnd is the server's end of a CLI.
type cliEnd struct {
	mu sync.Mutex
	in io.WriteCloser
	// answer, if set, gets the next response.
	answer chan []byte
}

// write writes to the CLI. The next response goes to answer, unless it is nil.
func (c *cliEnd) write(b []byte, answer chan []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer != nil {
		c.answer = answer
	}
	_, err := c.in.Write(b)
	return err
}

// divert gives a response at the start of what the CLI has sent to the call that waits for it, and returns the rest.
func (c *cliEnd) divert(b []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answer == nil {
		return b
	}
	var size int
	if _, err := fmt.Sscanf(string(b[:min(len(b), 32)]), "Content-Length: %d", &size); err != nil {
		return b
	}
	begin := bytes.IndexByte(b, '{')
	if begin < 0 || begin+size > len(b) || !bytes.HasPrefix(b[begin:], []byte(`{"jsonrpc":"2.0","id":`)) {
		return b
	}
	c.answer <- b[:begin+size]
	c.answer = nil
	return b[begin+size:]
}

// call carries a request to the CLI of the newest relay, and its response back.
func (s *server) call(stream grpc.ServerStream, request []byte) error {
	s.mu.Lock()
	cli := s.cli
	s.mu.Unlock()
	if cli == nil {
		return errors.New("there is no relay")
	}
	answer := make(chan []byte, 1)
	if err := cli.write(request, answer); err != nil {
		return err
	}
	select {
	case b := <-answer:
		return stream.SendMsg(b)
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

// keeper writes bytes to a file and then to a stream.
type keeper struct {
	file   *os.File
	parts  chan []byte
	failed chan error // capacity 1
}

// keep returns a keeper for a stream, whose goroutine ends with close.
func keep(stream grpc.ServerStream) (*keeper, error) {
	file, err := os.CreateTemp("", "copilot-grpc-raw-")
	if err != nil {
		return nil, err
	}
	k := &keeper{file: file, parts: make(chan []byte, 64), failed: make(chan error, 1)}
	go func() {
		var err error
		for b := range k.parts {
			if err == nil {
				_, err = file.Write(b)
			}
			if err == nil {
				err = stream.SendMsg(b)
			}
		}
		k.failed <- err
	}()
	return k, nil
}

func (k *keeper) send(b []byte) error {
	k.parts <- b
	return nil
}

func (k *keeper) close() error {
	close(k.parts)
	return errors.Join(<-k.failed, k.file.Close(), os.Remove(k.file.Name()))
}

// relay starts a CLI and carries bytes between it and the stream until either ends.
func (s *server) relay(stream grpc.ServerStream, cli string, kept bool) (err error) {
	send := func(b []byte) error { return stream.SendMsg(b) }
	if kept {
		k, err := keep(stream)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, k.close()) }()
		send = k.send
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, cli)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	end := &cliEnd{in: in}
	s.mu.Lock()
	s.cli = end
	s.mu.Unlock()
	// It ends with the stream: gRPC ends that when the handler returns.
	go func() {
		defer in.Close()
		for {
			var b []byte
			if stream.RecvMsg(&b) != nil {
				return
			}
			if end.write(b, nil) != nil {
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for err == nil {
		var n int
		if n, err = out.Read(buf); n > 0 {
			if b := end.divert(append([]byte(nil), buf[:n]...)); len(b) > 0 {
				err = errors.Join(err, send(b))
			}
		}
	}
	cancel()
	if wait := cmd.Wait(); err == io.EOF {
		err = wait
	}
	return err
}

// Pipe is the caller's end of a relay.
type Pipe struct {
	stream grpc.ClientStream
	cancel context.CancelFunc
	rest   []byte
}

// Dial has the server that c is connected with start a CLI. method is RelayMethod or KeepMethod.
func Dial(ctx context.Context, c *copilot.Client, method, cli string) (*Pipe, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.Conn().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method,
		grpc.ForceCodecV2(codec{}))
	if err == nil {
		err = stream.SendMsg([]byte(cli))
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &Pipe{stream: stream, cancel: cancel}, nil
}

// Call makes a call of CallMethod with a JSON-RPC request in its frame, and returns the response in its own.
func Call(ctx context.Context, c *copilot.Client, request []byte) (response []byte, err error) {
	err = c.Conn().Invoke(ctx, CallMethod, request, &response, grpc.ForceCodecV2(codec{}))
	return response, err
}

// Read implements io.Reader.
func (p *Pipe) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		if err := p.stream.RecvMsg(&p.rest); err != nil {
			return 0, err
		}
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Write implements io.Writer.
func (p *Pipe) Write(b []byte) (int, error) {
	// gRPC may look at the bytes after it has returned.
	if err := p.stream.SendMsg(append([]byte(nil), b...)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close ends the stream, and the CLI.
func (p *Pipe) Close() error {
	p.cancel()
	return nil
}
