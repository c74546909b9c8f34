package cli

import (
	"bytes"
	"io"
	"os/exec"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// pager is a program in which a person reads a long text, such as less.
type pager struct {
	io.WriteCloser
	program *exec.Cmd
}

func (p *program) noPagerFlag(f *flags) {
	f.BoolVar(&p.noPager, "no-pager", false, "no pager (PAGER, or less) for a text longer than the terminal")
}

// page makes what follows on stdout go to the pager of PAGER, or to less, if it does not fit the terminal. Outputs that
// are not to a terminal have no pager.
func (p *program) page() {
	width, height := terminalSize(p.stdout)
	if height == 0 || p.noPager || p.getenv(variable("no-pager")) != "" || p.getenv("TERM") == "dumb" {
		return
	}
	environ := p.environ()
	words := []string{"less"}
	for _, entry := range environ {
		if text, ok := strings.CutPrefix(entry, "PAGER="); ok {
			words = strings.Fields(text)
		}
	}
	if len(words) == 0 || words[0] == "cat" {
		return
	}
	if !slices.ContainsFunc(environ, func(entry string) bool { return strings.HasPrefix(entry, "LESS=") }) {
		environ = append(environ, "LESS=FX") // it ends by itself with a text that fits, and leaves the text on the terminal
	}
	o := p.stdout
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held == nil && o.pager == nil {
		o.held, o.width, o.height = new(bytes.Buffer), width, height
		o.start = func() *pager {
			cmd := exec.Command(words[0], words[1:]...)
			cmd.Env, cmd.Stdout, cmd.Stderr = environ, o.w, p.stderr
			return startPager(cmd)
		}
	}
}

// startPager starts a pager; nil if there is none of that name.
func startPager(cmd *exec.Cmd) *pager {
	text, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil
	}
	return &pager{text, cmd}
}

// fits reports whether the text that is held fits the terminal. The caller holds mu.
func (o *output) fits() bool {
	lines := 1 // the prompt of the shell
	for line := range bytes.Lines(o.held.Bytes()) {
		lines += 1 + max(0, terminal.Width(strings.TrimRight(string(line), "\n"))-1)/o.width
	}
	return lines <= o.height
}

// release writes the text that is held, to the pager if it does not fit. The caller holds mu.
func (o *output) release() error {
	text := o.held.Bytes()
	if !o.fits() {
		o.pager = o.start()
	}
	o.held = nil
	return o.write(text)
}

// closePager ends the text of a pager, and waits until the person has read it. The caller holds mu.
func (o *output) closePager() {
	if o.held != nil {
		_ = o.release() // the caller looks at the first error
	}
	if o.pager == nil {
		return
	}
	_ = o.pager.Close()
	_ = o.pager.program.Wait() // a pager that fails is no failure of the command
	o.pager = nil
}
