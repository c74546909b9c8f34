package process

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sweepRounds bounds the search for processes that fork while being ended.
const sweepRounds = 5

// SweepAbandoned ends what runtimes of dead owners left running (the owner was
// killed and could not do it) and returns how many processes that were. Only
// processes of this user and of owners in this pid namespace are touched; as root,
// those of any user, since CLI processes may be of another than the server.
func SweepAbandoned() int {
	return sweep(abandoned, DefaultOrphanGrace)
}

// endMarked ends every process that carries the marker and returns how many
// there were.
func endMarked(marker string, grace time.Duration) int {
	return sweep(func(value string) bool { return value == marker }, grace)
}

// sweep asks the matching processes to end, and after the grace makes them.
// Both happen in rounds, since a process may fork while it is being looked for.
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
		time.Sleep(10 * time.Millisecond) // nothing announces the end of a process that is not our child
	}
	return len(ended)
}

// marked lists the living processes that are ours to end and whose marker matches.
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

// signalMarked signals a process if it still is the one that was found: the
// handle is taken first and the marker read again, so that a pid given to
// another process in between is left alone.
func signalMarked(pid int, match func(string) bool, sig os.Signal) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	defer func() { _ = p.Release() }()
	if value, ok := markerOf(pid); ok && match(value) {
		_ = p.Signal(sig) // it may have ended meanwhile
	}
}

// markerOf reads the marker of a process of this user, as root of any. A zombie has none.
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

// abandoned tells whether the owner named in a marker is gone. Owners in other
// pid namespaces are none of our business: their pids mean nothing here.
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

// owner identifies a process for as long as the machine runs: its pid may be
// given to another one, but not with the same start time.
func owner(pid int) string {
	return pidNamespace() + "-" + strconv.Itoa(pid) + "-" + startTime(pid)
}

// pidNamespace returns the inode of our pid namespace: "pid:[4026531836]".
func pidNamespace() string {
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return unknown
	}
	return strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]")
}

// startTime returns field 22 of /proc/<pid>/stat. The second field is the
// program's name in parentheses and may contain anything, so count from its end.
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
