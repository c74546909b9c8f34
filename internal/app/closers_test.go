package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestClosersEndInReverseOrder(t *testing.T) {
	t.Parallel()
	var c closers
	var order []string
	add := func(name string, err error) {
		c.add(name, func(context.Context) error { order = append(order, name); return err })
	}
	broken := errors.New("broken")
	add("first", nil)
	add("second", broken)
	add("third", nil)
	add("fourth", nil)
	c.forget("third")
	err := c.close(t.Context())
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "close second") {
		t.Errorf("error %v", err)
	}
	if want := []string{"fourth", "second", "first"}; !slices.Equal(order, want) {
		t.Errorf("closed %q, want %q", order, want)
	}
	if err := c.close(t.Context()); err != nil || len(order) != 3 {
		t.Errorf("closed again: %v, %q", err, order)
	}
}
