package cli

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminalPair opens a terminal of 80 by 24: the end of the person, and that of the program.
func terminalPair(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("NOT RUN: no terminal can be opened: %v", err)
	}
	fd := int(person.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err == nil {
		program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = person.Close(), program.Close() })
	return person, program
}

// When the server stays away, the chat ends, and prints what the person has typed meanwhile and the server has not got.
func TestChatPrintsWhatWasNotSent(t *testing.T) {
	t.Parallel()
	l, through := newLink(t, server(t))
	person, screen := terminalPair(t)
	p, _, stderr := newProgram(nil, "")
	p.stdin, p.stdout, p.patience = screen, &output{w: screen}, 8*time.Second
	ended := make(chan int, 1)
	go func() {
		ended <- p.main(t.Context(), []string{"chat", "--target", through})
		_, _ = screen.WriteString("the end")
	}()
	shown := ""
	shows := func(text string) {
		t.Helper()
		buffer := make([]byte, 4<<10)
		for !strings.Contains(shown, text) {
			n, err := person.Read(buffer)
			if err != nil {
				t.Fatalf("%q is never shown: %v", text, err)
			}
			shown += string(buffer[:n])
		}
	}
	types := func(text string) {
		t.Helper()
		if _, err := person.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	shows("Enter sends")
	types(" arrives\r") // with a space, so that it is not kept for chats of the user of this test
	shows("You said")
	l.cut()
	shows("Trying again")
	types(" gets lost\r")
	types("half a prompt Ω")
	shows("Ω")
	shows("the end")
	_, after, _ := strings.Cut(shown, "\x1b[?1049l") // the screen is the person's again
	want := regexp.MustCompile(`Not sent:\r\ngets lost\r\nNot sent:\r\nhalf a prompt Ω\r\n`)
	if code := <-ended; code != exitNoServer || !want.MatchString(after) || strings.Contains(after, "arrives") {
		t.Errorf("code %d, %q, %s", code, after, stderr)
	}
}
