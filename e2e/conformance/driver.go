package conformance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"

	conformancev1 "github.com/copilot-grpc/copilot-grpc/e2e/conformance/conformancev1"
)

// caseTimeout bounds a case. A driver that does not answer in this time is killed.
const caseTimeout = 2 * time.Minute

// driver is a running program over one library.
type driver struct {
	language string
	command  []string
	env      []string
	process  *exec.Cmd
	in       io.WriteCloser
	out      chan *conformancev1.Response // closed at the end of the driver's output
	stderr   *tail
}

// start starts the program, unless it runs.
func (d *driver) start() error {
	if d.process != nil {
		return nil
	}
	process := exec.Command(d.command[0], d.command[1:]...)
	process.Env = append(os.Environ(), d.env...)
	d.stderr = &tail{}
	process.Stderr = d.stderr
	in, err := process.StdinPipe()
	if err != nil {
		return err
	}
	out, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return fmt.Errorf("start %v: %w", d.command, err)
	}
	d.process, d.in, d.out = process, in, make(chan *conformancev1.Response, 1)
	go d.read(bufio.NewReader(out), d.out)
	return nil
}

func (d *driver) read(in *bufio.Reader, to chan<- *conformancev1.Response) {
	defer close(to)
	for {
		response := &conformancev1.Response{}
		if err := protodelim.UnmarshalFrom(in, response); err != nil {
			return
		}
		to <- response
	}
}

// run runs a case. control carries out what the driver asks for.
func (d *driver) run(
	ctx context.Context, c *conformancev1.Case, control func(context.Context, string) error,
) (*conformancev1.Result, error) {
	if err := d.start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	request := &conformancev1.Request{Message: &conformancev1.Request_Case{Case: c}}
	for {
		if _, err := protodelim.MarshalTo(d.in, request); err != nil {
			return nil, errors.Join(err, d.stop(true))
		}
		select {
		case response, ok := <-d.out:
			if !ok {
				return nil, fmt.Errorf("the driver ended: %w\n%s", d.stop(true), d.stderr)
			}
			if result := response.GetResult(); result != nil {
				return result, nil
			}
			if err := control(ctx, response.GetControl().GetName()); err != nil {
				return nil, errors.Join(err, d.stop(true))
			}
		case <-ctx.Done():
			err := d.stop(true)
			return nil, fmt.Errorf("the driver has no result after %v (%w)\n%s", caseTimeout, err, d.stderr)
		}
		request = &conformancev1.Request{Message: &conformancev1.Request_Proceed{Proceed: &conformancev1.Proceed{}}}
	}
}

// stop ends the program, at once if kill is set. The next run starts it again.
func (d *driver) stop(kill bool) error {
	if d.process == nil {
		return nil
	}
	_ = d.in.Close()
	if kill {
		_ = d.process.Process.Kill()
	}
	timer := time.AfterFunc(10*time.Second, func() { _ = d.process.Process.Kill() })
	defer timer.Stop()
	for range d.out { // until the end of its output
	}
	err := d.process.Wait()
	d.process = nil
	return err
}

// tail is the last part of a program's messages.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if extra := len(t.text) - 8<<10; extra > 0 {
		t.text = bytes.Clone(t.text[extra:])
	}
	return len(p), nil
}

// String is the text.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
