package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Environment describes the machine and the programs that are measured with it, in one line.
func Environment(ctx context.Context) string {
	parts := []string{
		runtime.GOOS + "/" + runtime.GOARCH,
		fmt.Sprintf("%d CPUs (%s)", runtime.NumCPU(), field("/proc/cpuinfo", "model name")),
		field("/proc/meminfo", "MemTotal") + " of memory",
		"kernel " + first("/proc/sys/kernel/osrelease"), runtime.Version(),
	}
	for _, command := range [][]string{{"node", "--version"}, {"python3", "--version"}} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).Output(); err == nil {
			parts = append(parts, command[0]+" "+strings.TrimPrefix(strings.TrimSpace(string(out)), "Python "))
		}
	}
	return strings.Join(parts, ", ")
}

// unknown stands for a part of the environment that the system does not tell.
const unknown = "unknown"

// first returns a file's first line.
func first(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return unknown
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// field returns the value of the first line "name: value" of a file.
func field(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return unknown
	}
	return fieldOf(string(text), name)
}

func fieldOf(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return unknown
}
