package session

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
)

// tried is a disk that fails, and notes when it was tried.
type tried struct {
	began time.Time
	after []time.Duration
}

func (*tried) Load() ([]byte, error)       { return nil, nil }
func (*tried) List() ([]string, error)     { return nil, nil }
func (*tried) Read(string) ([]byte, error) { return nil, nil }
func (*tried) Write(string, []byte) error  { return nil }
func (*tried) Remove(string) error         { return nil }
func (d *tried) Save([]byte) error {
	d.after = append(d.after, time.Since(d.began))
	return errors.New("it fails")
}

// TestRetryPauses: a disk that fails is tried again after pauses that grow up to a bound.
func TestRetryPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := &tried{}
		box, err := outbox.Open(disk)
		if err != nil {
			t.Fatal(err)
		}
		box.Moved(outbox.Note{At: journal.Position{Epoch: 1, Seq: 1}, IDs: []string{"a"}, As: []string{"b"}})
		ctx, cancel := context.WithCancel(t.Context())
		f := &flusher{outbox: box, start: func(f func(context.Context)) bool { go f(ctx); return true }}
		disk.began = time.Now()
		f.retry()
		time.Sleep(2 * time.Minute)
		cancel()
		synctest.Wait()
		var want []time.Duration
		for at, pause := minFlushRetry, minFlushRetry; at < 2*time.Minute; at += pause {
			want = append(want, at)
			pause = min(2*pause, maxFlushRetry)
		}
		if !slices.Equal(disk.after, want) {
			t.Errorf("it is tried after %v, want %v", disk.after, want)
		}
	})
}
