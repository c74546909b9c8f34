package bridge

import (
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// duration reads a duration within bounds; unset is zero.
func duration(d *durationpb.Duration, field string, low, high time.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil {
		return 0, fault.Wrap(err, fault.InvalidField, "%s", field).WithField(field)
	}
	if v := d.AsDuration(); v < low || v > high {
		return 0, fault.New(fault.InvalidField, "%s is %v, not between %v and %v", field, v, low, high).WithField(field)
	}
	return d.AsDuration(), nil
}

// known refuses an enum's number that this version has no name for: what it was to mean
// cannot be guessed.
func known(e protoreflect.Enum, field string) error {
	if e.Descriptor().Values().ByNumber(e.Number()) == nil {
		return fault.New(fault.InvalidField, "%s has no value %d", e.Descriptor().Name(), e.Number()).WithField(field)
	}
	return nil
}

// within puts a prefix before the field that an error names.
func within(err error, at string) error {
	if f, ok := asFault(err); ok && f.Field != "" {
		return f.WithField(at + f.Field)
	}
	return err
}

// rename replaces the beginning of the field that an error names.
func rename(err error, from, to string) error {
	f, ok := asFault(err)
	if !ok {
		return err
	}
	if rest, ok := strings.CutPrefix(f.Field, from); ok {
		return f.WithField(to + rest)
	}
	return err
}

func asFault(err error) (*fault.Error, bool) { return errors.AsType[*fault.Error](err) }
