// Package filewatch notices that files have changed. It looks at them now and then: what puts
// new certificates and configuration in place does so in too many ways (renames, links to
// links, network file systems) for a kernel's notice to come each time.
package filewatch

import (
	"context"
	"crypto/sha256"
	"os"
	"time"
)

// Every is how often files are looked at.
const Every = 2 * time.Second

// Watch calls changed whenever the contents of the files have changed, until ctx ends. It calls paths each time.
func Watch(ctx context.Context, every time.Duration, paths func() []string, changed func()) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	last := digest(paths())
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := digest(paths()); now != last {
			last = now // what changes meanwhile is noticed the next time
			changed()
		}
	}
}

// digest is the same for the same contents. A file that cannot be read has none.
func digest(paths []string) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, path := range paths {
		one := sha256.New()
		if text, err := os.ReadFile(path); err == nil {
			one.Write(text)
		}
		h.Write([]byte(path))
		h.Write(one.Sum(nil))
	}
	h.Sum(sum[:0])
	return sum
}
