package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// A disk that fails or hangs leaves prompts in memory, and says so, until it is well again.
func TestDiskThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testDiskThatFails)
}

func testDiskThatFails(t *testing.T) {
	disk := onDisk()
	b := opened(t, disk)
	full := errors.New("full")
	disk.set(full, nil)
	n, inMemory, err := b.Add(Prompt{Params: json.RawMessage(`{"prompt":"p"}`)}, keepAll, journal.Position{})
	if err != nil || !inMemory || !errors.Is(b.Problem(), full) {
		t.Errorf("a full disk: %v, %v, problem %v", inMemory, err, b.Problem())
	}
	if durable, _, _ := noted(b, n, []string{"m1"}); durable {
		t.Error("the answer is on a full disk")
	}
	release := make(chan struct{})
	disk.set(nil, release)
	began := time.Now()
	n, inMemory, err = b.Add(Prompt{Params: json.RawMessage(`{"prompt":"p"}`)}, keepAll, journal.Position{})
	if err != nil || !inMemory || !errors.Is(b.Problem(), errSlow) {
		t.Errorf("a disk that hangs: %v, %v, problem %v", inMemory, err, b.Problem())
	}
	if durable, _, _ := noted(b, n, []string{"m2"}); durable || time.Since(began) > 3*diskTimeout {
		t.Errorf("the answer is on a disk that hangs: %v", durable)
	}
	again, _, err := b.AddLater(Prompt{Params: json.RawMessage(`{"prompt":"p"}`)}, keepAll, journal.Position{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one finds the first, which hangs
		done := make(chan bool, 2)
		go b.Accepted(again, []string{"m3"}, journal.Position{}, func(durable, _ bool, _ error) { done <- durable })
		if <-done {
			t.Error("a prompt is on a disk that hangs")
		}
	}
	disk.set(nil, nil)
	close(release)
	synctest.Wait() // for the write that hung
	if err := b.Flush(); err != nil || b.Problem() != nil {
		t.Errorf("the problem stays: %v, %v", err, b.Problem())
	}
	// A part of an acknowledged prompt that the disk lacks is not sent again, but its loss is reported.
	for _, e := range opened(t, disk).Entries() {
		if e.Acknowledged() && (e.stored || e.line != nil) == (e.Obstacle() != "") {
			t.Errorf("the next life has %+v", e)
		}
	}
}

// A disk that cannot be read loses nothing: the outbox does not open.
func TestUnreadableDisk(t *testing.T) {
	t.Parallel()
	large := string(bytes.Repeat([]byte("x"), MaxInLog+1))
	for name, text := range map[string]string{logFile: "one", promptFile(1): large} {
		disk := onDisk()
		b := opened(t, disk)
		accepted(t, b, put(t, b, text), []string{"m1"})
		disk.unreadable = name
		if _, err := Open(disk); !errors.Is(err, errUnreadable) || errors.Is(err, ErrDamaged) {
			t.Errorf("without %s it opens with %v", name, err)
		}
		disk.unreadable = ""
		entries := opened(t, disk).Entries()
		if len(entries) != 1 || !entries[0].Acknowledged() || entries[0].Obstacle() != "" {
			t.Errorf("%s: the next life has %+v", name, entries)
		}
	}
}

// TestUnlistedDisk: an outbox opens without a folder, and not if it cannot be known what is in it.
func TestUnlistedDisk(t *testing.T) {
	t.Parallel()
	disk := onDisk()
	for _, disk.unlisted = range []error{fs.ErrNotExist, errUnreadable} {
		if _, err := Open(disk); errors.Is(err, errUnreadable) != errors.Is(disk.unlisted, errUnreadable) {
			t.Errorf("%v: it opens with %v", disk.unlisted, err)
		}
	}
}

// If the state is damaged, any prompt may have been acknowledged, and none is sent again.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	disk := onDisk()
	b := opened(t, disk)
	accepted(t, b, put(t, b, "one"), []string{"m1"})
	lines := bytes.SplitAfter(disk.files[logFile], []byte("\n"))
	disk.files[logFile] = slices.Concat(lines[0], []byte("{\n"), lines[1])
	b, err := Open(disk)
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("it opens with %v", err)
	}
	entries := b.Entries()
	if len(entries) != 1 || !entries[0].Acknowledged() || entries[0].Obstacle() == "" {
		t.Errorf("it has %+v", entries)
	}
}

// Nothing is written once the outbox is closed: its directory may be gone.
func TestClosed(t *testing.T) {
	t.Parallel()
	disk := onDisk()
	b := opened(t, disk)
	b.Close()
	_, _, _ = b.Add(Prompt{Params: json.RawMessage(`{}`)}, keepAll, journal.Position{})
	if len(disk.files) != 0 {
		t.Errorf("on disk are %v", disk.files)
	}
}

// TestFileWithoutState: a file of a prompt that the state does not list is a prompt without a reply. Other files are none.
func TestFileWithoutState(t *testing.T) {
	t.Parallel()
	disk := onDisk()
	disk.files[promptFile(3)] = []byte(`{"params":{"prompt":"p"}}`)
	disk.files["4"], disk.files["x"+suffix] = []byte(`{}`), []byte(`{}`)
	entries := opened(t, disk).Entries()
	if len(entries) != 1 || entries[0].N != 3 || entries[0].Acknowledged() {
		t.Errorf("the prompts are %v", entries)
	}
}

// TestFileIsGone: a prompt that was acknowledged and whose file is gone cannot be sent again.
func TestFileIsGone(t *testing.T) {
	t.Parallel()
	disk := onDisk()
	b := opened(t, disk)
	n := put(t, b, strings.Repeat("x", MaxInLog))
	if _, _, err := noted(b, n, []string{"m1"}); err != nil {
		t.Fatal(err)
	}
	delete(disk.files, promptFile(n))
	entries := opened(t, disk).Entries()
	if len(entries) != 1 || entries[0].Obstacle() == "" {
		t.Errorf("the prompts are %v", entries)
	}
}
