package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"go.uber.org/goleak"
)

// leakPatience is how long what is ending may take to end.
const leakPatience = 10 * time.Second

// stock is what a process has.
type stock struct {
	goroutines goleak.Option
	files      map[string]int
	children   map[int]bool
}

func takeStock() stock {
	return stock{goroutines: goleak.IgnoreCurrent(), files: files(), children: children()}
}

// compare returns what is there now and was not before.
func (s stock) compare() (left []string) {
	deadline := time.Now().Add(leakPatience)
	for {
		left = left[:0]
		for pid := range children() {
			if !s.children[pid] {
				left = append(left, fmt.Sprintf("process %d", pid))
			}
		}
		for name, n := range files() {
			if n > s.files[name] {
				left = append(left, fmt.Sprintf("%d open files %s", n-s.files[name], name))
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := goleak.Find(s.goroutines); err != nil {
		left = append(left, err.Error())
	}
	return left
}

// files counts the open files by kind; the files of the Go runtime are left out.
func files() map[string]int {
	out := map[string]int{}
	links, _ := filepath.Glob("/proc/self/fd/*") // the pattern is a good one
	for _, link := range links {
		name, err := os.Readlink(link)
		if err != nil || strings.HasPrefix(name, "anon_inode:") || strings.HasPrefix(name, "/proc/") {
			continue
		}
		if kind, _, ok := strings.Cut(name, ":["); ok { // numbers of pipes and sockets say nothing
			name = kind
		}
		out[name]++
	}
	return out
}

// children are the processes whose parent this one is.
func children() map[int]bool {
	out := map[int]bool{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is a good one
	self := []byte(strconv.Itoa(os.Getpid()))
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		// "pid (name) state ppid …"; the name may hold anything.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && len(fields) > 1 &&
			bytes.Equal(fields[1], self) {
			out[pid] = true
		}
	}
	return out
}

// heap is how many bytes are in use.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
