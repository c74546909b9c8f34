package server

import (
	"context"
	"errors"
	"fmt"
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
		p := invocation{call: new(call), chain: &chain{layers: []layer{step(1), step(2), step(3)},
			panicked: func(_ context.Context, _ *call, p any) error { return p.(error) }}}
		err := p.leave(p.unary(t.Context(), tc.handler))
		if !errors.Is(err, tc.err) || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, %v, want %q, %v", name, got, err, tc.want, tc.err)
		}
	}
}
