package server

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"google.golang.org/grpc"
)

type layerKey struct{}

// Layers are entered in their order and left in the other, as far as the call came: past a
// refusal and past a panic.
func TestPassage(t *testing.T) {
	t.Parallel()
	refused, broken := errors.New("refused"), errors.New("broken")
	answers := func(err error) grpc.UnaryHandler {
		return func(context.Context, any) (any, error) { return nil, err }
	}
	for name, tc := range map[string]struct {
		refuse  int // the layer that refuses; none with 0
		fall    int // the layer that panics; none with 0
		handler grpc.UnaryHandler
		want    []string
		inner   int // the layer whose context the others are left with
		err     error
	}{
		"served": {0, 0, answers(nil), []string{"+1", "+2", "+3", "-3", "-2", "-1"}, 3,
			nil},
		"failed": {0, 0, answers(broken), []string{"+1", "+2", "+3", "-3", "-2", "-1"}, 3,
			broken},
		"refused": {2, 0, nil, []string{"+1", "+2", "-2", "-1"}, 1, refused},
		"panicked": {0, 0, func(context.Context, any) (any, error) { panic(broken) },
			[]string{"+1", "+2", "+3", "-3", "-2", "-1"}, 3, broken},
		"a layer panicked": {0, 2, nil, []string{"+1", "+2", "-2", "-1"}, 1, broken},
	} {
		for _, apart := range []bool{false, true} {
			var got []string
			step := func(n int) layer {
				return layer{func(ctx context.Context, _ *call) (context.Context, error) {
					got = append(got, fmt.Sprint("+", n))
					if n == tc.refuse {
						return nil, refused
					}
					if n == tc.fall {
						panic(broken)
					}
					return context.WithValue(ctx, layerKey{}, n), nil
				}, func(ctx context.Context, _ *call, err error) error {
					if !errors.Is(err, tc.err) {
						t.Errorf("%s: layer %d is told %v", name, n, err)
					}
					if inner, _ := ctx.Value(layerKey{}).(int); inner != tc.inner {
						t.Errorf("%s: layer %d is left with the context of layer %d", name, n, inner)
					}
					got = append(got, fmt.Sprint("-", n))
					return err
				}}
			}
			p := passage{apart: apart, call: new(call), chain: &chain{layers: []layer{step(1), step(2), step(3)},
				panicked: func(_ context.Context, _ *call, p any) error { return p.(error) }}}
			err := p.leave(p.unary(t.Context(), tc.handler))
			if !errors.Is(err, tc.err) || !slices.Equal(got, tc.want) {
				t.Errorf("%s, apart %v: %q, %v, want %q, %v", name, apart, got, err, tc.want, tc.err)
			}
		}
	}
}

// A stream has none of the layers on its stack, however many there are: the collector gives back
// half of a stack only where less than a quarter is in use.
func TestLayersAreOffTheStack(t *testing.T) {
	t.Parallel()
	depth := func(layers int) (n int) {
		p := passage{call: new(call), chain: new(chain)}
		for range layers {
			p.chain.layers = append(p.chain.layers, trail)
		}
		if err := p.leave(p.unary(t.Context(), func(context.Context, any) (any, error) {
			n = runtime.Callers(0, make([]uintptr, 1000))
			return nil, nil
		})); err != nil {
			t.Error(err)
		}
		return n
	}
	if few, many := depth(1), depth(50); few != many {
		t.Errorf("a handler is %d calls deep inside a layer, %d inside fifty", few, many)
	}
}
