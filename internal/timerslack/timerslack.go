// Package timerslack lets the kernel wake the threads of a program later than they ask for, so that the program uses
// less CPU and answers sooner.
//
// Go's runtime has a thread that looks every 20 µs whether another one is in a long system call, and a thread without
// work sleeps for 3 µs before it takes work from a busy one. A server that waits for the network most of the time
// spends up to half of its CPU time on these short sleeps, and delays the threads that have work. Linux adds a thread's
// timer slack to each sleep, 50 µs if nobody has set it. With 1 ms these threads wake seldom. In return all timers of
// the program, and the runtime's notice of a long system call, can be up to 1 ms late.
//
// A thread inherits its slack, and a program that is executed keeps it. The runtime's threads exist before any code of
// the program runs, so the program sets its own slack and executes itself again. That takes 4 to 5 ms.
package timerslack

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Variable is the environment variable with another slack, as a duration of Go: 50us is the kernel's own.
const Variable = "COPILOT_GRPC_TIMER_SLACK"

const (
	// Default is the slack of a server.
	Default = time.Millisecond
	// Kernel is the slack that Linux gives a program.
	Kernel = 50 * time.Microsecond
	// Max bounds Variable.
	Max = 100 * time.Millisecond
)

// Parse returns the slack that a value of Variable asks for, Default if it is empty.
func Parse(value string) (time.Duration, error) {
	if value == "" {
		return Default, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 || d > Max {
		return 0, fmt.Errorf("%s=%q is no duration from 1ns to %v", Variable, value, Max)
	}
	return d, nil
}

// Wanted returns the slack for a program with some arguments and a value of Variable. It is 0 if the program keeps its
// own, because it is not a server or the value is invalid.
func Wanted(args []string, value string) time.Duration {
	if d, err := Parse(value); err == nil && serves(args) {
		return d
	}
	return 0
}

// serves reports whether the arguments start a program that waits for others' requests: serve, or the shim, which may
// have the name of the CLI.
func serves(args []string) bool {
	if len(args) > 0 && strings.TrimSuffix(filepath.Base(args[0]), ".exe") == "copilot" {
		return true
	}
	return len(args) > 1 && (args[1] == "serve" || args[1] == "shim")
}
