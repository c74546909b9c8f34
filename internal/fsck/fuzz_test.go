package fsck_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

const (
	fuzzedSession = "sessions/s"
	fuzzedSegment = "/0000000000000001-0000000000000000.seg"
)

// fuzzed are the files whose content FuzzCheck chooses.
var fuzzed = []string{
	fuzzedSession + fuzzedSegment, "journals" + fuzzedSegment, "states" + fuzzedSegment, "requests" + fuzzedSegment,
	fuzzedSession + "/session", fuzzedSession + "/id", fuzzedSession + "/outbox/log", fuzzedSession + "/outbox/state",
	fuzzedSession + "/outbox/1.prompt", "epoch", "journals.doubts", "usage/" + strings.Repeat("0", 32), "damaged/s/reason",
}

// checkContent verifies a directory with one file of a content.
func checkContent(t *testing.T, name string, data []byte) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, fuzzedSession), 0o700))
	path := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, data, 0o600))
	verify(t, dir)
}

// seeds are contents of real files, with a frame or none damaged.
func seeds(f *testing.F, add func(data []byte)) {
	dir := f.TempDir()
	b := openBridge(dir, 1)
	b.round(3)
	b.close()
	for _, pattern := range []string{"*/*.seg", "sessions/*/*.seg", "sessions/*/session", "epoch", "usage/*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) == 0 {
			f.Fatalf("no %s: %v", pattern, err)
		}
		data, err := os.ReadFile(found[0])
		if err != nil {
			f.Fatal(err)
		}
		add(data)
		add(data[:len(data)*2/3])
		data[len(data)/2] ^= 4
		add(data)
	}
}

// No content of any file makes the verifier fail.
func FuzzCheck(f *testing.F) {
	seeds(f, func(data []byte) {
		for i := range fuzzed {
			f.Add(uint8(i), data)
		}
	})
	f.Fuzz(func(t *testing.T, file uint8, data []byte) {
		checkContent(t, fuzzed[int(file)%len(fuzzed)], data)
	})
}

// built makes a segment of frames, most of them valid, as data says: random bytes have no right checksums.
func built(base byte, data []byte) (out []byte) {
	next := func(n int) []byte {
		n = min(n, len(data))
		part := data[:n]
		data = data[n:]
		return part
	}
	frame := func(kind byte, number byte, body []byte) {
		payload := append([]byte{kind, number & 127}, body...)
		length := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
		sum := crc32.Checksum(append(slices.Clone(length), payload...), crc32.MakeTable(crc32.Castagnoli))
		out = append(binary.LittleEndian.AppendUint32(append(out, length...), sum), payload...)
	}
	if len(data) > 0 && data[0] < 240 {
		frame(1, base, binary.LittleEndian.AppendUint64([]byte("cgj\x01"), 1))
	}
	for len(data) >= 3 {
		how, number, begin := next(1)[0], next(1)[0], len(out)
		body := next(int(next(1)[0] % 40))
		switch {
		case how < 140:
			frame(2, number, append(eventBody(number, ""), body...))
		case how < 170:
			frame(3, number, body)
		case how < 200:
			frame(how%5, number, body)
		default:
			out = append(out, body...)
		}
		if size := len(out) - begin; how%8 == 7 && size > 0 {
			out[begin+int(number)%size] ^= 1 << (how % 7)
		}
	}
	if len(data) > 0 {
		out = out[:len(out)-min(len(out), int(data[0]%50))]
	}
	return out
}

// agree compares the verifier and the bridge on a log of segments, each with its base.
func agree(t *testing.T, segments map[byte][]byte) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, fuzzedSession), 0o700))
	for base, data := range segments {
		name := fmt.Sprintf("0000000000000001-%016x.seg", base)
		must(t, os.WriteFile(filepath.Join(dir, fuzzedSession, name), data, 0o600))
	}
	r := verify(t, dir)
	events, last := 0, uint64(0)
	_, found, err := segment.Open(filepath.Join(dir, fuzzedSession), 1, segment.Options{FS: segment.OS{}},
		func(number uint64, body []byte) error {
			_, err := journal.ParseRecord(journal.Position{}, body)
			if err == nil {
				events++
				last = number
			}
			return err
		})
	must(t, err)
	damaged := found.Skipped > 0 || len(found.Holes) > 0 || found.Altered
	// The file epoch is missing.
	const expected = 1
	if s := r.Sessions[0]; s.Events != events || s.Last != last || damaged && r.Damage.Total <= expected {
		t.Errorf("the bridge finds %d events up to %d and %+v, the verifier %+v and %+v", events, last, found, s, r.Damage)
	}
}

// The verifier and the bridge find the same events in every segment, and what the bridge calls damage the verifier does.
func FuzzAgrees(f *testing.F) {
	seeds(f, func(data []byte) { f.Add(data) })
	f.Fuzz(func(t *testing.T, data []byte) {
		agree(t, map[byte][]byte{0: data})
		agree(t, map[byte][]byte{0: built(0, data)})
		if len(data) > 0 {
			base, half := data[0]&127, len(data)/2
			agree(t, map[byte][]byte{0: built(0, data[:half]), base: built(base, data[half:])})
		}
	})
}

func TestAgrees(t *testing.T) {
	t.Parallel()
	rnd := rand.NewChaCha8([32]byte{3})
	for i := range 1000 {
		data := make([]byte, 200)
		_, _ = rnd.Read(data)
		data = data[:rnd.Uint64()%200]
		base, half := byte(i%64), len(data)*(i%3+1)/4
		agree(t, map[byte][]byte{0: built(0, data[:half]), base: built(base, data[half:])})
	}
}
