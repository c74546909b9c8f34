package leak

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// procDir is where the kernel shows its processes.
const procDir = "/proc"

// stateZombie is the kernel's letter for a process that ended and was not waited for.
const stateZombie = "Z"

// process describes a child that was left behind.
type process struct {
	pid   int
	name  string
	state string
}

// String names the process as "name (pid 1, running)".
func (p process) String() string {
	state := "running"
	if p.state == stateZombie {
		state = "zombie"
	}
	return fmt.Sprintf("%q (pid %d, %s)", p.name, p.pid, state)
}

// children lists the processes in proc whose parent is the given one. Orphans adopted by a child subreaper have that
// parent too, as intended. Without a proc file system the list is empty.
func children(proc string, parent int) ([]process, error) {
	stats, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "stat"))
	if err != nil {
		return nil, err
	}
	var found []process
	for _, path := range stats {
		line, err := os.ReadFile(path)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		p, ppid, err := parseStat(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if ppid == parent {
			found = append(found, p)
		}
	}
	return found, nil
}

// gone reports that a process ended between being listed and being read.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// parseStat reads "pid (name) state ppid …". The name may hold spaces and
// parentheses, so it ends at the last one of the line.
func parseStat(line []byte) (process, int, error) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return process{}, 0, fmt.Errorf("no process name in %q", line)
	}
	fields := bytes.Fields(line[end+1:])
	if len(fields) < 2 {
		return process{}, 0, fmt.Errorf("no parent in %q", line)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(line[:open])))
	if err != nil {
		return process{}, 0, fmt.Errorf("process id: %w", err)
	}
	ppid, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return process{}, 0, fmt.Errorf("parent id: %w", err)
	}
	return process{pid: pid, name: string(line[open+1 : end]), state: string(fields[0])}, ppid, nil
}
