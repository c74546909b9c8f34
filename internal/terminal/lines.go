package terminal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxLine is the longest line of an input, in bytes. It has room for the longest prompt that a server accepts by default.
const MaxLine = 4 << 20

// ErrLineTooLong says that a line has more than MaxLine bytes. The whole line is left out, as half a prompt or half an
// answer means something else.
var ErrLineTooLong = fmt.Errorf("a line of the input is longer than %d MiB and was left out", MaxLine>>20)

// Line is a line of an input without its end, or says why there is none.
type Line struct {
	Text string
	// ErrLineTooLong, after which further lines follow, or the error of reading that ends the input.
	Err error
}

// Lines reads the lines of an input until it or ctx ends, and then closes the channel. The last line may lack its line
// feed. The goroutine that reads needs at most about twice MaxLine of memory; a read that blocks ends with the program.
func Lines(ctx context.Context, in io.Reader) <-chan Line {
	lines := make(chan Line)
	go func() {
		defer close(lines)
		reader := bufio.NewReader(in)
		for {
			text, err := readLine(reader)
			if errors.Is(err, io.EOF) {
				return
			}
			select {
			case lines <- Line{text, err}:
			case <-ctx.Done():
				return
			}
			if err != nil && !errors.Is(err, ErrLineTooLong) {
				return
			}
		}
	}()
	return lines
}

// readLine reads a line. An error other than ErrLineTooLong, such as io.EOF, comes after the last line.
func readLine(in *bufio.Reader) (string, error) {
	var line []byte
	tooLong := false
	for {
		part, err := in.ReadSlice('\n')
		// The end of a line has at most two bytes.
		if tooLong = tooLong || len(line)+len(part) > MaxLine+2; !tooLong {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		text := strings.TrimRight(string(line), "\r\n")
		switch {
		case tooLong, len(text) > MaxLine:
			return "", ErrLineTooLong
		case len(line) == 0:
			return "", err
		}
		return text, nil // an error comes again
	}
}
