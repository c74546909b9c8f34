package journal

import (
	"testing"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// A journal that is closed while a write of its is under way is closed in order all the same:
// the next life goes on where it stopped.
func TestClosedDuringAWrite(t *testing.T) { bothWays(t, testClosedDuringAWrite) }

func testClosedDuringAWrite(t *testing.T, cfg WriterConfig) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, &faultfs.FS{}, cfg)
		l.j.Append(durable(0))
		l.awaitShown()
		release := l.fs.Stall()
		l.j.Append(durable(1))
		synctest.Wait() // it is being written
		closed := make(chan error, 1)
		go func() { closed <- l.j.Close(t.Context()) }()
		synctest.Wait()
		release()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		l.w.Close()
		l = begin(t, l.fs, cfg)
		if !l.rec.Clean || l.j.Last().Seq != 2 {
			t.Errorf("the next life goes on at %v; %+v", l.j.Last(), l.rec)
		}
		l.close()
	})
}
