// Package fields checks request fields and names the offending field in errors. It is pure.
package fields

import (
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Duration reads a duration between low and high; an unset one is zero.
func Duration(d *durationpb.Duration, field string, low, high time.Duration) (time.Duration, error) {
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

// Known rejects an enum value that this version does not define.
func Known(e protoreflect.Enum, field string) error {
	if e.Descriptor().Values().ByNumber(e.Number()) == nil {
		return fault.New(fault.InvalidField, "%s has no value %d", e.Descriptor().Name(), e.Number()).WithField(field)
	}
	return nil
}

// Within prefixes the field that an error names with at.
func Within(err error, at string) error {
	if f, ok := AsFault(err); ok && f.Field != "" {
		return f.WithField(at + f.Field)
	}
	return err
}

// Rename replaces the prefix from of the field that an error names by to.
func Rename(err error, from, to string) error {
	f, ok := AsFault(err)
	if !ok {
		return err
	}
	if rest, ok := strings.CutPrefix(f.Field, from); ok {
		return f.WithField(to + rest)
	}
	return err
}

// AsFault returns the fault in an error's chain.
func AsFault(err error) (*fault.Error, bool) { return errors.AsType[*fault.Error](err) }
