package account_test

import (
	"errors"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/server/account"
)

// budget is a Budget of most bytes.
type budget struct{ used, most int }

var errFull = errors.New("full")

func (b *budget) Take(n int) error {
	if b.used += n; b.used > b.most {
		return errFull
	}
	return nil
}

func (b *budget) Change(n int) { b.used += n }

func TestAccount(t *testing.T) {
	t.Parallel()
	b := &budget{most: 100}
	a := account.New(b)
	for i, step := range []struct {
		do   func() error
		err  error
		used int
	}{
		{func() error { return a.Open(10) }, nil, 10},
		{func() error { return a.Arrive(30) }, nil, 40},
		{func() error { return a.Unpack(30) }, nil, 40}, // the same bytes
		{func() error { return a.Unpack(20) }, nil, 60}, // they were compressed
		{func() error { return a.Arrive(20) }, nil, 60},
		{func() error { return a.Decode(40) }, nil, 100},
		{func() error { return a.Arrive(1) }, errFull, 100},
		{func() error { a.Reset(); return nil }, nil, 10},
		{func() error { return a.Arrive(91) }, errFull, 10},
		{func() error { return a.Arrive(90) }, nil, 100},
		{func() error { a.End(); a.End(); return nil }, nil, 0},
	} {
		if err := step.do(); !errors.Is(err, step.err) || b.used != step.used {
			t.Errorf("step %d: error %v, %d bytes used, want %v and %d", i, err, b.used, step.err, step.used)
		}
	}
	if a.Arrive(1) == nil || b.used != 0 {
		t.Error("bytes are taken after the end")
	}
}

// Without a budget nothing is counted.
func TestWithoutBudget(t *testing.T) {
	t.Parallel()
	a := account.New(nil)
	if err := errors.Join(a.Open(1), a.Arrive(1), a.Unpack(1), a.Decode(1)); err != nil {
		t.Error(err)
	}
	a.Reset()
	a.End()
}
