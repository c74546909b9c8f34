package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// diskEnv makes this program the holder of a disk: it has the directory on which the disk is mounted.
const diskEnv = "CLUSTER_DISK"

// diskSize is the size of a disk: a schedule needs a tenth of it.
const diskSize = 128 << 20

// disk is a file system in memory for one NATS server, which can be full. It belongs to a process with a mount
// namespace, and outlives the server.
type disk struct {
	dir string // by which other processes reach it
}

// holdDisk mounts a disk on a directory, and holds it until the test's process has ended.
func holdDisk(dir string) error {
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", diskSize))
	if err != nil {
		return fmt.Errorf("mounting on %s: %w", dir, err)
	}
	fmt.Println("mounted")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// newDisk makes a disk that ends with the test. It fails where users may not make namespaces.
func newDisk(t *testing.T) (*disk, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir := t.TempDir()
	holder := exec.Command(self)
	holder.Env = append(os.Environ(), diskEnv+"="+dir)
	holder.Stderr = os.Stderr
	holder.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	in, err := holder.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := holder.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = holder.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, fmt.Errorf("the holder of the disk said %q: %w", line, err)
	}
	return &disk{fmt.Sprintf("/proc/%d/root%s", holder.Process.Pid, dir)}, nil
}

// fill leaves no byte on the disk until release is called.
func (d *disk) fill() (release func() error, err error) {
	name := filepath.Join(d.dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	piece := make([]byte, 4<<10)
	for err == nil {
		_, err = f.Write(piece)
	}
	if err = errors.Join(f.Close(), err); !errors.Is(err, syscall.ENOSPC) {
		return nil, err
	}
	return func() error { return os.Remove(name) }, nil
}

// A full disk takes no byte more, and takes them again when it has room.
func TestDisk(t *testing.T) {
	t.Parallel()
	d, err := newDisk(t)
	if err != nil {
		t.Skipf("no disk for a test: %v", err)
	}
	write := func() error { return os.WriteFile(filepath.Join(d.dir, "file"), make([]byte, 1<<20), 0o600) }
	if err := write(); err != nil {
		t.Fatal(err)
	}
	release, err := d.fill()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "more"), []byte("x"), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Errorf("a disk with room: %v", err)
	}
}
