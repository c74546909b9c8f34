package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/race"
)

func sendKey(tenant, id string) backend.Key {
	return backend.Key{Tenant: tenant, Operation: "Send\x00s1", ID: id}
}

// requests opens the log of requests of a data directory.
func requests(t *testing.T, s *store.Store) (backend.Requests, map[backend.Key]backend.Request) {
	t.Helper()
	log, list, err := s.Requests()
	must(t, err)
	found := map[backend.Key]backend.Request{}
	for _, q := range list {
		found[q.Key] = q
	}
	return log, found
}

func TestRequests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	log, old := requests(t, s)
	if len(old) != 0 {
		t.Fatalf("a new log has %v", old)
	}
	later := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	large := bytes.Repeat([]byte("x"), 2*backend.MaxInline)
	answered, begun, kept := sendKey("a", "answered"), sendKey("", "begun"), sendKey("a", "large")
	for _, q := range []backend.Request{
		{Key: answered, Expires: later, Since: []byte("x")},
		{Key: answered, Expires: later, Sum: []byte("s"), Type: "T", Answer: []byte("a")},
		{Key: begun, Expires: later.Add(time.Minute), Since: []byte("y")},
		{Key: kept, Expires: later.Add(-time.Minute), Type: "T", Answer: large},
		{Key: sendKey("", "failed"), Expires: later, Since: []byte("z")}, {Key: sendKey("", "failed"), Expires: later, Over: true},
		{Key: sendKey("", "expired"), Expires: time.Now(), Type: "T"},
	} {
		must(t, log.Add(q))
	}
	must(t, s.Close()) // as a crash: the log is not closed
	s = open(t, dir)
	log, list, err := s.Requests()
	must(t, err)
	var keys []backend.Key
	for _, q := range list {
		keys = append(keys, q.Key)
	}
	if want := []backend.Key{kept, answered, begun}; !slices.Equal(keys, want) {
		t.Fatalf("remembered are %q, want %q", keys, want)
	}
	if q := list[1]; string(q.Answer) != "a" || string(q.Sum) != "s" || !q.Expires.Equal(later) || q.Old || q.Bytes != 1 {
		t.Errorf("the answered one is %+v", q)
	}
	if q := list[2]; string(q.Since) != "y" || q.Type != "" {
		t.Errorf("the begun one is %+v", q)
	}
	if q := list[0]; q.Answer != nil || q.Bytes != int64(len(large)) {
		t.Errorf("the large one is %+v", q)
	}
	if typ, answer, err := log.Answer(kept); err != nil || typ != "T" || !bytes.Equal(answer, large) {
		t.Errorf("the large answer is %q, %d bytes, %v", typ, len(answer), err)
	}
	log.Forget(answered, later.Add(-time.Second)) // of one before it
	if _, _, err := log.Answer(answered); err != nil {
		t.Errorf("a newer request is forgotten with an older one: %v", err)
	}
	log.Forget(answered, later)
	if _, _, err := log.Answer(answered); err == nil {
		t.Error("a request that was forgotten has an answer")
	}
	must(t, s.Close())
}

// An answer whose record is damaged is an error, and no empty answer.
func TestDamagedAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	log, _ := requests(t, s)
	key := sendKey("a", "large")
	large := bytes.Repeat([]byte("x"), 2*backend.MaxInline)
	must(t, log.Add(backend.Request{Key: key, Expires: time.Now().Add(time.Hour), Type: "T", Answer: large}))
	files, err := filepath.Glob(filepath.Join(dir, "requests", "*.seg"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the log is in %q, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	must(t, err)
	text[bytes.Index(text, large)+len(large)/2] ^= 1
	must(t, os.WriteFile(files[0], text, 0o600))
	if typ, answer, err := log.Answer(key); err == nil {
		t.Errorf("Answer() = %q, %d bytes, and no error", typ, len(answer))
	}
	must(t, s.Close())
}

// A log that was written before there were quotas opens, with everything in it.
func TestRequestsOfTheFirstForm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.CopyFS(filepath.Join(dir, "requests"), os.DirFS("testdata/requests-d377de2")))
	s := open(t, dir)
	log, old := requests(t, s)
	sum := make([]byte, 32)
	for i := range sum {
		sum[i] = byte(i)
	}
	const sendType = "copilot.bridge.v1.SendResponse"
	for _, want := range []struct {
		key                backend.Key
		typ, answer, since string
	}{
		{sendKey("", "r1"), sendType, "\n\x02m1", ""},
		{sendKey("acme", "r1"), sendType, "\n\x02m2", ""},
		{backend.Key{Tenant: "acme", Operation: "CreateSession", ID: "c1"}, "", "", "s9"},
		{backend.Key{Operation: "Resolve", ID: "a\x00b"}, "", "", "\x01"},
		{backend.Key{Tenant: "acme", Operation: "SendAndWait end\x00s1", ID: "r2"}, "copilot.bridge.v1.SendAndWaitResponse", "\n\x02m3", ""},
		{backend.Key{Operation: "session.plan.read\x00s1", ID: "r3"}, "google.protobuf.BytesValue", "\n\x02{}", ""},
		{backend.Key{Tenant: "acme", Operation: "models.list\x00", ID: "r4"}, "google.protobuf.BytesValue", "\n\x02{}", ""},
	} {
		q, ok := old[want.key]
		delete(old, want.key)
		if !ok || q.Type != want.typ || string(q.Answer) != want.answer || string(q.Since) != want.since || !q.Old || !bytes.Equal(q.Sum, sum) {
			t.Errorf("%q: %v, %+v", want.key, ok, q)
		}
	}
	if len(old) > 0 {
		t.Errorf("also remembered: %+v", old)
	}
	must(t, log.Add(backend.Request{Key: sendKey("", "new"), Expires: time.Now().Add(time.Hour), Type: "T"}))
	if _, answer, err := log.Answer(sendKey("acme", "r1")); err != nil || string(answer) != "\n\x02m2" {
		t.Errorf("an old answer is %q, %v", answer, err)
	}
	must(t, log.Close())
	if _, again := requests(t, s); len(again) != 8 {
		t.Errorf("with a new record there are %d", len(again))
	}
	must(t, s.Close())
}

// size is what the files of a log have.
func size(t *testing.T, dir string) (n int64) {
	t.Helper()
	files, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range files {
		info, err := f.Info()
		must(t, err)
		n += info.Size()
	}
	return n
}

// The log is as large as what is remembered asks for, however much was written to it.
func TestRequestsAreCompacted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	log, _ := requests(t, s)
	later := time.Now().Add(time.Hour)
	answer := []byte(strings.Repeat("x", 100_000))
	const keep, most = 20, 16 << 20
	for i := range 600 { // 60 MB
		must(t, log.Add(backend.Request{Key: sendKey("", strconv.Itoa(i)), Expires: later, Type: "T", Answer: append(answer, strconv.Itoa(i)...)}))
		if i%30 != 0 {
			log.Forget(sendKey("", strconv.Itoa(i)), later)
		}
		if n := size(t, filepath.Join(dir, "requests")); n > most {
			t.Fatalf("after %d requests the log has %d bytes", i, n)
		}
	}
	for i := range 100_000 { // what fails leaves no more
		key := sendKey("", fmt.Sprint("failed", i%10))
		must(t, log.Add(backend.Request{Key: key, Expires: later, Since: []byte("then")}))
		must(t, log.Add(backend.Request{Key: key, Expires: later, Over: true}))
	}
	if n := size(t, filepath.Join(dir, "requests")); n > most {
		t.Errorf("after failures the log has %d bytes", n)
	}
	check := func() {
		for i := 0; i < 600; i += 30 {
			_, got, err := log.Answer(sendKey("", strconv.Itoa(i)))
			if want := string(answer) + strconv.Itoa(i); err != nil || string(got) != want {
				t.Errorf("answer %d has %d bytes, %v", i, len(got), err)
			}
		}
	}
	check()
	must(t, s.Close()) // as a crash
	s = open(t, dir)
	var old map[backend.Key]backend.Request
	if log, old = requests(t, s); len(old) != keep {
		t.Errorf("%d requests are left, want %d", len(old), keep)
	}
	check()
	must(t, log.Close())
	must(t, s.Close())
}

// The oldest file of the log goes only when what was moved from it is on disk, whichever sync has failed before.
func TestCompactingAfterAFailedSync(t *testing.T) {
	t.Parallel()
	filler := bytes.Repeat([]byte("x"), 1<<20)
	for failed := 8; failed < 16; failed++ { // in one of these the log is compacted
		fs := &faultfs.FS{}
		config := store.Config{Dir: t.TempDir(), Journals: journal.WriterConfig{FS: fs}}
		s, err := store.Open(config)
		must(t, err)
		log, _ := requests(t, s)
		expires := time.Now().Add(time.Hour)
		must(t, log.Add(backend.Request{Key: sendKey("", "first"), Expires: expires, Type: "T", Answer: []byte("a")}))
		must(t, errors.Join(log.Close(), s.Close())) // which syncs it
		s, err = store.Open(config)
		must(t, err)
		log, _ = requests(t, s)
		for i := range failed + 1 {
			if i == failed {
				fs.Fail(faultfs.Sync, errors.New("no sync"))
			}
			key := sendKey("", fmt.Sprint(i))
			_ = log.Add(backend.Request{Key: key, Expires: expires, Since: filler}) // the last one may fail
			log.Forget(key, expires)
		}
		fs.Fail(faultfs.Sync, nil)
		_ = log.Compact(t.Context()) // it may fail until the next record
		config.Journals.FS = fs.Restart(true)
		_ = errors.Join(log.Close(), s.Close()) // of the machine before the crash
		s, err = store.Open(config)
		must(t, err)
		if _, old := requests(t, s); old[sendKey("", "first")].Type != "T" {
			t.Errorf("after a crash of the machine a request is lost; the sync of record %d had failed", failed)
		}
		must(t, s.Close())
	}
}

// Wherever a crash falls, of the process or of the machine, what was answered stays.
func TestRequestsOutliveACrash(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	filler := bytes.Repeat([]byte("x"), 2<<20)
	for _, power := range []bool{false, true} {
		for crash := 16; crash < 60; crash += 3 * race.Sample(5) {
			fs := &faultfs.FS{}
			config := store.Config{Dir: t.TempDir(), Journals: journal.WriterConfig{FS: fs, Fsync: journal.FsyncAlways}}
			s, err := store.Open(config)
			must(t, err)
			log, _ := requests(t, s)
			must(t, log.Add(backend.Request{Key: sendKey("", "first"), Expires: later, Type: "T", Answer: []byte("a")}))
			fs.CrashAfter(crash)
			last := -1
			for i := range 12 { // 24 MiB of which next to nothing counts
				key := sendKey("", strconv.Itoa(i))
				if log.Add(backend.Request{Key: key, Expires: later, Since: filler}) != nil {
					break
				}
				if log.Add(backend.Request{Key: key, Expires: later, Type: "T", Answer: []byte("a")}) != nil {
					break
				}
				last = i
			}
			must(t, s.Close())
			config.Journals.FS = fs.Restart(power)
			s, err = store.Open(config)
			must(t, err)
			_, old := requests(t, s)
			if q, ok := old[sendKey("", "first")]; !ok || string(q.Answer) != "a" {
				t.Fatalf("crash at %d, power %v: the first request is lost", crash, power)
			}
			for i := range last + 1 {
				if old[sendKey("", strconv.Itoa(i))].Type == "" {
					t.Fatalf("crash at %d, power %v: request %d of %d has no answer", crash, power, i, last+1)
				}
			}
			must(t, s.Close())
		}
	}
}

// After a failed sync the log of requests is written anew, so that the next one makes all of it safe.
func TestSyncOfRequestsFails(t *testing.T) {
	t.Parallel()
	fs, dir := &faultfs.FS{}, t.TempDir()
	always := func(fs *faultfs.FS) *store.Store {
		s, err := store.Open(store.Config{Dir: dir, Journals: journal.WriterConfig{FS: fs, Fsync: journal.FsyncAlways}})
		must(t, err)
		return s
	}
	s := always(fs)
	log, _ := requests(t, s)
	add := func(id string) error {
		return log.Add(backend.Request{Key: sendKey("", id), Expires: time.Now().Add(time.Hour), Sum: []byte("x")})
	}
	must(t, add("first"))
	fs.Fail(faultfs.Sync, fmt.Errorf("no sync"))
	if add("second") == nil {
		t.Error("a sync that failed was not reported")
	}
	fs.Fail(faultfs.Sync, nil)
	must(t, add("third"))
	next := fs.Restart(true)
	must(t, log.Close())
	must(t, s.Close())
	s = always(next)
	log, found := requests(t, s)
	if len(found) != 3 {
		t.Errorf("after a crash of the machine the requests are %v", found)
	}
	must(t, log.Close())
	must(t, s.Close())
}
