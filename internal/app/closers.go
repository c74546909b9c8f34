package app

import (
	"context"
	"errors"
	"fmt"
)

// closers end things in the reverse order of their making.
type closers []closer

type closer struct {
	name  string
	close func(context.Context) error
}

func (c *closers) add(name string, f func(context.Context) error) {
	*c = append(*c, closer{name, f})
}

// forget takes out what has seen to its own end.
func (c *closers) forget(name string) {
	kept := (*c)[:0]
	for _, one := range *c {
		if one.name != name {
			kept = append(kept, one)
		}
	}
	*c = kept
}

// close ends what is not closed yet, however the others fared.
func (c *closers) close(ctx context.Context) error {
	var errs []error
	for len(*c) > 0 {
		last := (*c)[len(*c)-1]
		*c = (*c)[:len(*c)-1]
		if err := last.close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", last.name, err))
		}
	}
	return errors.Join(errs...)
}
