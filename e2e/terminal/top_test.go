package terminal

import (
	"fmt"
	"syscall"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
)

// A person watches the server with top, on a terminal that changes its size. The server is killed meanwhile, which the
// screen says, and comes back. The terminal is then as it was before.
func TestTop(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{80, 24}, {160, 50}} {
		t.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(t *testing.T) {
			t.Parallel()
			p := sits(newServer(t), size[0], size[1])
			s, err := p.Client.CreateSession(p.Ctx, copilot.SessionOptions{ID: "one"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Send(p.Ctx, "slowly"); err != nil {
				t.Fatal(err)
			}
			p.types("stty -g > before; copilot-grpc top --interval 100ms; stty -g > after; echo exit $?")
			p.waits("sessions: 1", "turns: 1", "CLI processes: 1", "ready", "one", "running")
			p.Stop(syscall.SIGKILL)
			p.waits("No server answers since ", "trying again", "one", "running")
			p.Start()
			p.matches(`sessions: \d+   turns: 0   CLI processes: 1`)
			p.tmux("resize-window", "-x", "20", "-y", "3")
			p.matches(`copilot-grpc \S+ +…`)
			p.tmux("resize-window", "-x", fmt.Sprint(size[0]), "-y", fmt.Sprint(size[1]))
			p.matches(`CLI processes: 1(?s:.*)SESSION`)
			p.presses("q")
			p.waits("exit 0")
			p.hasItsTerminalBack()
		})
	}
}
