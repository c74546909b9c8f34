package copilottest

import (
	"fmt"
	"runtime"
	"testing"
)

// recorder is a test that notes how it ended.
type recorder struct {
	testing.TB
	ended, text string
}

func (*recorder) Helper() {}

func (r *recorder) end(how, text string) {
	r.ended, r.text = how, text
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any)  { r.end("skipped", fmt.Sprintf(format, args...)) }
func (r *recorder) Fatalf(format string, args ...any) { r.end("failed", fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                 { r.end("failed", fmt.Sprint(args...)) }
