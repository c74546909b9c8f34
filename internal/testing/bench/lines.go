package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// lines is a program that answers each line of its standard input with a line, and ends with its input.
type lines struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

// startLines starts the program.
func startLines(cmd *exec.Cmd) (*lines, error) {
	l := &lines{cmd: cmd}
	cmd.Stderr = &l.stderr
	var err error
	if l.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	l.out = bufio.NewReader(out)
	return l, cmd.Start()
}

// patience bounds an answer.
const patience = 10 * time.Minute

// read returns the next line.
func (l *lines) read() ([]byte, error) {
	defer time.AfterFunc(patience, func() { _ = l.cmd.Process.Kill() }).Stop()
	return l.out.ReadBytes('\n')
}

// ask writes a line and returns the answer.
func (l *lines) ask(line string) ([]byte, error) {
	if _, err := fmt.Fprintln(l.in, line); err != nil {
		return nil, err
	}
	return l.read()
}

// close ends the program.
func (l *lines) close() error {
	err := l.in.Close()
	defer time.AfterFunc(endTimeout, func() { _ = l.cmd.Process.Kill() }).Stop()
	if wait := l.cmd.Wait(); wait != nil {
		err = errors.Join(err, fmt.Errorf("%w: %s", wait, l.stderr.String()))
	}
	return err
}
