package rawgrpc

import (
	"context"
	"errors"
	"io"
	"os/exec"

	"google.golang.org/grpc"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
)

// RelayMethod carries bytes to a CLI and back: the first message is its path.
const RelayMethod = "/raw.Relay/Relay"

// relay starts a CLI and carries bytes between it and the stream until either ends.
func relay(stream grpc.ServerStream, cli string) error {
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
	// It ends with the stream: gRPC ends that when the handler returns.
	go func() {
		defer in.Close()
		for {
			var b []byte
			if stream.RecvMsg(&b) != nil {
				return
			}
			if _, err := in.Write(b); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for err == nil {
		var n int
		if n, err = out.Read(buf); n > 0 {
			err = errors.Join(err, stream.SendMsg(append([]byte(nil), buf[:n]...)))
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

// Dial has the server that c is connected with start a CLI.
func Dial(ctx context.Context, c *copilot.Client, cli string) (*Pipe, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.Conn().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, RelayMethod,
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
