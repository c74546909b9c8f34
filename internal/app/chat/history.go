package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// history are the inputs of a person, the newest last.
type history struct {
	all []string
	// Which one is shown; len(all) for the new input.
	at  int
	new string
}

// add adds an input, and reports whether it did: not if it begins with a space, or is the last one again.
func (h *history) add(text string) bool {
	h.new = ""
	fits := strings.TrimSpace(text) != "" && text[0] != ' ' && (len(h.all) == 0 || h.all[len(h.all)-1] != text)
	if fits {
		h.all = append(h.all, text)
	}
	h.at = len(h.all)
	return fits
}

func (h *history) older(shown string) string {
	if h.at == len(h.all) {
		h.new = shown
	}
	if h.at == 0 {
		return shown
	}
	h.at--
	return h.all[h.at]
}

func (h *history) newer(shown string) string {
	if h.at == len(h.all) {
		return shown
	}
	if h.at++; h.at == len(h.all) {
		return h.new
	}
	return h.all[h.at]
}

// Bounds of the file of inputs.
const (
	// maxInputs is the number of inputs that the file is shortened to when it has twice as many.
	maxInputs = 1000
	// maxInput is the longest input that is kept, in bytes of JSON. Longer ones are pasted.
	maxInput = 4 << 10
	// maxInputsFile is the size of a file that was not written by a chat.
	maxInputsFile = 16 << 20
)

// inputsFile keeps a person's inputs for later chats: JSON strings, one a line, the newest last. Only the person can
// read it. Each input is appended by one write, so that chats at the same time do not mix theirs; one that begins
// exactly while another shortens the file can lose an input. It is safe for concurrent use.
type inputsFile struct {
	path string

	mu sync.Mutex
	// Why inputs are not kept; nil if they are. reported says that keep has returned it.
	err      error
	reported bool
}

// newInputsFile is the file of inputs in a directory, or none if the directory has an error.
func newInputsFile(dir string, err error) *inputsFile {
	return &inputsFile{path: filepath.Join(dir, "chat-history.jsonl"), err: err}
}

// read returns the inputs of earlier chats. An error is kept for the first input: before, it matters to nobody.
func (f *inputsFile) read() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil
	}
	lines, err := f.lines()
	if err == nil && len(lines) > 2*maxInputs {
		lines = lines[len(lines)-maxInputs:]
		err = replace(f.path, strings.Join(lines, ""))
	}
	f.err = err
	var inputs []string
	for _, line := range lines {
		var text string
		if json.Unmarshal([]byte(line), &text) == nil { // half a line is what a full disk leaves
			inputs = append(inputs, terminal.Clean(text))
		}
	}
	return inputs
}

// lines are the lines of the file, with their line feeds.
func (f *inputsFile) lines() ([]string, error) {
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // opening it could wait forever
		return nil, fmt.Errorf("%q is no file", f.path)
	case info.Size() > maxInputsFile:
		return nil, fmt.Errorf("%q has %d bytes: delete it", f.path, info.Size())
	case info.Mode().Perm()&0o077 != 0:
		if err := os.Chmod(f.path, 0o600); err != nil {
			return nil, err
		}
	}
	text, err := os.ReadFile(f.path)
	return slices.Collect(strings.Lines(string(text))), err
}

// replace replaces a file, atomically, by one that only the person can read.
func replace(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".chat-history-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// keep adds an input to the file. After an error, which it returns once, it keeps nothing.
func (f *inputsFile) keep(text string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reported {
		return nil
	}
	if f.err == nil {
		f.err = f.append(text)
	}
	f.reported = f.err != nil
	return f.err
}

func (f *inputsFile) append(text string) error {
	line, err := json.Marshal(text)
	if err != nil || len(line) > maxInput {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}
