package process

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sweepRounds bounds the rounds for processes that fork while they are being ended.
const sweepRounds = 5

// SweepAbandoned ends the processes that runtimes of killed owners left, and returns their count. It affects
// only processes of this user with owners in this pid namespace. As root it affects processes of all users,
// since CLI processes may run as another user than the server.
func SweepAbandoned() int {
	return sweep(abandoned, DefaultOrphanGrace)
}

// endMarked ends all processes with the marker and returns their count.
func endMarked(marker string, grace time.Duration) int {
	return sweep(func(value string) bool { return value == marker }, grace)
}

// sweep sends SIGTERM to the matching processes, and SIGKILL after the grace. It works in rounds, because processes
// may fork meanwhile.
func sweep(match func(marker string) bool, grace time.Duration) int {
	ended := map[int]bool{}
	deadline := time.Now().Add(grace)
	for round := 0; round < sweepRounds; {
		found := marked(match)
		if len(found) == 0 {
			break
		}
		sig := syscall.SIGTERM
		if time.Now().After(deadline) {
			sig = syscall.SIGKILL
			round++
		}
		for pid := range found {
			if sig == syscall.SIGKILL || !ended[pid] {
				signalMarked(pid, match, sig)
			}
			ended[pid] = true
		}
		time.Sleep(10 * time.Millisecond) // the end of a process that is not a child cannot be waited for
	}
	return len(ended)
}

// marked lists the running processes whose marker matches and that this process may end.
func marked(match func(string) bool) map[int]bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	found := map[int]bool{}
	self := os.Getpid()
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == self {
			continue
		}
		if value, ok := markerOf(pid); ok && match(value) {
			found[pid] = true
		}
	}
	return found
}

// signalMarked signals a process if its marker still matches: it takes the handle first and reads the marker again,
// so that a reused pid is not signalled.
func signalMarked(pid int, match func(string) bool, sig os.Signal) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	defer func() { _ = p.Release() }()
	if value, ok := markerOf(pid); ok && match(value) {
		_ = p.Signal(sig) // the process may have ended meanwhile
	}
}

// markerOf reads the marker of a process of this user, or as root of any user. A zombie has none.
func markerOf(pid int) (string, bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	info, err := os.Stat(dir)
	if err != nil {
		return "", false
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || os.Getuid() != 0 && int(st.Uid) != os.Getuid() {
		return "", false
	}
	environ, err := os.ReadFile(dir + "/environ")
	if err != nil {
		return "", false
	}
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(MarkerEnv+"=")); ok {
			return string(value), true
		}
	}
	return "", false
}

// abandoned reports whether the owner in a marker has ended. It returns false for owners in other pid namespaces,
// whose pids are unknown here.
func abandoned(marker string) bool {
	parts := strings.Split(marker, "-")
	if len(parts) != 4 {
		return false
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil || parts[0] != pidNamespace() || parts[0] == unknown {
		return false
	}
	return owner(pid) != strings.Join(parts[:3], "-")
}

const unknown = "0"

// owner identifies a process until the machine restarts: a pid may be reused, but not with the same start time.
func owner(pid int) string {
	return pidNamespace() + "-" + strconv.Itoa(pid) + "-" + startTime(pid)
}

// pidNamespace returns the inode of the current pid namespace: "pid:[4026531836]".
func pidNamespace() string {
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return unknown
	}
	return strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]")
}

// startTime returns field 22 of /proc/<pid>/stat. The second field is the program's name in parentheses and may
// contain any text, so fields are counted from its end.
func startTime(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return unknown
	}
	_, rest, _ := strings.Cut(string(stat[max(0, bytes.LastIndexByte(stat, ')')):]), " ")
	fields := strings.Fields(rest)
	const startField = 22 - 3
	if len(fields) <= startField {
		return unknown
	}
	return fields[startField]
}
