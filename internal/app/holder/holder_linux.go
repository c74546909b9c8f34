package holder

import (
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// OfPort returns the process that keeps others from listening on a TCP address, HOST:PORT.
func OfPort(address string) (Process, bool) {
	host, text, err := net.SplitHostPort(address)
	port, wrong := strconv.ParseUint(text, 10, 16)
	if err != nil || wrong != nil {
		return Process{}, false
	}
	ip := net.ParseIP(host) // nil for a name
	var sockets []string
	// A line has the number, the local address, the remote address, the state, five more fields and the inode.
	for _, f := range append(lines("/proc/net/tcp"), lines("/proc/net/tcp6")...) {
		const listening = "0A"
		if len(f) > 9 && f[3] == listening && overlap(f[1], ip, port) {
			sockets = append(sockets, socketName(f[9]))
		}
	}
	return find(func(target string) bool { return slices.Contains(sockets, target) })
}

// overlap reports whether a socket at a local address, HEX:HEX, keeps others from an address. A nil ip may be any.
func overlap(local string, ip net.IP, port uint64) bool {
	host, text, _ := strings.Cut(local, ":")
	if p, err := strconv.ParseUint(text, 16, 16); err != nil || p != port {
		return false
	}
	own, err := hex.DecodeString(host)
	if err != nil {
		return false
	}
	for word := range slices.Chunk(own, 4) { // each in the order of the machine, which is little-endian
		slices.Reverse(word)
	}
	return ip == nil || ip.IsUnspecified() || net.IP(own).IsUnspecified() || ip.Equal(own)
}

// OfSocket returns the process that listens on a unix socket.
func OfSocket(path string) (Process, bool) {
	var sockets []string
	// A line has seven fields, of which the last is the inode, and the path.
	for _, f := range lines("/proc/net/unix") {
		if len(f) > 7 && strings.Join(f[7:], " ") == path {
			sockets = append(sockets, socketName(f[6]))
		}
	}
	return find(func(target string) bool { return slices.Contains(sockets, target) })
}

// OfDirectory returns a process that has a file of a directory open. Files in its subdirectories do not count.
func OfDirectory(dir string) (Process, bool) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Process{}, false
	}
	return find(func(target string) bool { return filepath.Dir(target) == dir })
}

// lines returns the fields of the lines of a table of the kernel; none if it cannot be read.
func lines(path string) (list [][]string) {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		list = append(list, strings.Fields(line))
	}
	return list
}

// socketName is the name of a socket among the files of a process.
func socketName(inode string) string { return "socket:[" + inode + "]" }

// find returns the first process with an open file of such a name.
func find(wanted func(target string) bool) (Process, bool) {
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is valid
	for _, file := range files {
		target, err := os.Readlink(file)
		if err != nil || !wanted(target) {
			continue
		}
		dir := filepath.Dir(filepath.Dir(file))
		pid, _ := strconv.Atoi(filepath.Base(dir)) // a number, by the pattern
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		return Process{PID: pid, Name: strings.TrimSpace(string(name))}, err == nil
	}
	return Process{}, false
}
