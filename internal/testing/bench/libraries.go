package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
)

// Library is the driver of a client library: a program that is called with the address of the server, reads lines
// "stubs|library call|event1|event16" from its standard input, carries each out, and answers it with a line that has
// the number of operations.
type Library struct {
	Name    string
	Command []string
}

// LibraryConfig says what [CompareLibraries] measures.
type LibraryConfig struct {
	Libraries []Library
	Repeats   int
	// Calls and Events are the operations of a round.
	Calls, Events int
	Log           io.Writer
}

// libraryWarmup is the number of rounds that are not measured: virtual machines compile in them.
const libraryWarmup = 3

// libraryOperations are what is measured, with their titles.
var libraryOperations = [][2]string{
	{"call", "tool call"}, {"event1", "event, one in a frame"}, {"event16", "event, 16 in a frame"},
}

// CompareLibraries measures the CPU time that the process of a client takes for each tool call and each event: with the
// library, and with the stubs alone, by turns.
func CompareLibraries(ctx context.Context, c LibraryConfig) (table Table, err error) {
	server, err := serveScript(c.Calls, c.Events)
	if err != nil {
		return table, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	table = Table{
		Title: "A tool call and an event in each library",
		Note: fmt.Sprintf("User and system time of the client's process, µs, in rounds of %d calls and %d events: "+
			"the median of %d rounds by turns, with the lowest and highest. A scripted server answers at once, over a "+
			"unix socket. The ratio is that of a round with the library to the round with the stubs before it.",
			c.Calls, c.Events, c.Repeats),
		Header: []string{"library", "operation", "stubs", "library", "ratio"},
	}
	for _, library := range c.Libraries {
		rows, err := c.measure(ctx, library, server.target)
		if err != nil {
			return table, fmt.Errorf("%s: %w", library.Name, err)
		}
		table.Rows = append(table.Rows, rows...)
	}
	return table, nil
}

func (c LibraryConfig) measure(ctx context.Context, l Library, target string) (rows [][]string, err error) {
	d, err := startLines(exec.CommandContext(ctx, l.Command[0], append(l.Command[1:], target)...))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	for _, operation := range libraryOperations {
		want := c.Events
		if operation[0] == "call" {
			want = c.Calls
		}
		var stubs, library sample
		for round := range libraryWarmup + c.Repeats {
			before, err := libraryRound(d, "stubs "+operation[0], want)
			if err != nil {
				return nil, err
			}
			with, err := libraryRound(d, "library "+operation[0], want)
			if err != nil {
				return nil, err
			}
			if round >= libraryWarmup {
				stubs.add(before)
				library.add(with)
			}
		}
		row := []string{l.Name, operation[1], stubs.String(), library.String(), ratio(library, stubs).String()}
		fmt.Fprintln(c.Log, strings.Join(row, "  "))
		rows = append(rows, row)
	}
	return rows, nil
}

// libraryRound carries out one line and returns the CPU time of an operation in µs.
func libraryRound(l *lines, line string, want int) (float64, error) {
	begin, err := cpuTime(l.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	answer, err := l.ask(line)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", line, err)
	}
	if got := strings.TrimSpace(string(answer)); got != strconv.Itoa(want) {
		return 0, fmt.Errorf("%s: %s operations, want %d", line, got, want)
	}
	end, err := cpuTime(l.cmd.Process.Pid)
	return micros(end-begin) / float64(want), err
}
