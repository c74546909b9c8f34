package deepcall

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestDo(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if err := Do(func() error { return broken }); err != broken {
		t.Errorf("Do returns %v", err)
	}
	if err := Do(func() error { runtime.Goexit(); return broken }); err != nil {
		t.Errorf("a function that ends its goroutine returns %v", err)
	}
}

// The panic arrives at the caller, with the stack of the function that panicked.
func TestPanic(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	defer func() {
		p, ok := recover().(*Panic)
		if !ok || p.Value != any(broken) || !errors.Is(p, broken) || p.Error() != "broken" ||
			!strings.Contains(string(p.Stack), "deepcall.fails") {
			t.Errorf("recovered %+v", p)
		}
	}()
	_ = Do(func() error { fails(broken); return nil })
}

//go:noinline
func fails(err error) { panic(err) }
