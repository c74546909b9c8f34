package corpus

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/reference"
)

// Report is what replaying traffic has found.
type Report struct {
	// Runtimes, Frames and Bytes are how much was read.
	Runtimes, Frames, Bytes int
	// Values counts what was sent there and back, by kind: params, results, events.
	Values map[string]int
	// Errors counts answers that are errors, which have no type.
	Errors int
	// Types are the messages that values were of, with how many.
	Types map[protoreflect.FullName]int
	// Failures are values that did not survive. The texts do not show the values.
	Failures []string
	// Kept counts the values, by what kind of thing in them no typed field could
	// hold: "nulls" only nulls that mean something, "more" anything else.
	Kept map[string]int
	// Drift counts, by place, what no typed field could hold.
	Drift map[Place]int
}

// Replay sends all traffic recorded in a folder there and back. It is an error
// that there is none, or that it cannot be read as messages.
func Replay(dir string) (*Report, error) {
	all, err := load(dir)
	if err != nil {
		return nil, err
	}
	r := &replay{
		Report: Report{
			Values: make(map[string]int), Types: make(map[protoreflect.FullName]int),
			Kept: make(map[string]int), Drift: make(map[Place]int),
		},
		methods: methods(), set: translate.NewSet(),
	}
	for _, x := range all {
		if err := r.exchange(x); err != nil {
			return nil, fmt.Errorf("recording %q: %w", x.name, err)
		}
	}
	if r.Frames == 0 {
		return nil, fmt.Errorf("no traffic in %q", dir)
	}
	slices.Sort(r.Failures)
	r.Failures = slices.Compact(r.Failures)
	return &r.Report, nil
}

type replay struct {
	Report
	methods map[string]method
	set     *translate.Set
}

// exchange replays both directions. Answers are typed by the call that they
// answer, which went the other way.
func (r *replay) exchange(x exchange) error {
	r.Runtimes++
	var parsed [2][]translate.Frame
	var calls [2]map[string]string // methods by id, of calls that went this way
	for i, recording := range [...][]byte{x.to, x.from} {
		calls[i] = make(map[string]string)
		if err := eachFrame(recording, func(f translate.Frame) {
			if f.Kind == translate.FrameRequest {
				calls[i][string(f.ID)] = string(f.Method)
			}
			parsed[i] = append(parsed[i], f)
		}); err != nil {
			return err
		}
		r.Frames += len(parsed[i])
		r.Bytes += len(recording)
	}
	for i := range parsed {
		for _, f := range parsed[i] {
			r.frame(f, calls[1-i])
		}
	}
	return nil
}

// frame replays what one message holds.
func (r *replay) frame(f translate.Frame, asked map[string]string) {
	if f.Kind != translate.FrameResponse {
		m, ok := r.methods[string(f.Method)]
		switch {
		case !ok:
			r.Drift[Place{Message: "method " + string(f.Method), Why: Unlisted}]++
		case m.optional && (f.Params == nil || string(f.Params) == "null"):
		case f.Params == nil:
			r.value("params", m.params, []byte("{}"))
		case f.Event.Raw != nil:
			r.value("events", m.params, f.Params) // with all of the event
		default:
			r.value("params", m.params, f.Params)
		}
		return
	}
	if f.Error != nil {
		r.Errors++
		return
	}
	name, ok := asked[string(f.ID)]
	if !ok {
		r.Drift[Place{Message: "answer to nothing", Why: Unlisted}]++
		return
	}
	if m, ok := r.methods[name]; ok {
		r.value("results", m.result, f.Result)
	}
}

// value sends one value there and back.
func (r *replay) value(kind string, md protoreflect.MessageDescriptor, text []byte) {
	r.Values[kind]++
	r.Types[md.FullName()]++
	if err := r.roundTrip(md, text); err != nil {
		r.Failures = append(r.Failures, fmt.Sprintf("%s %s: %v", kind, md.Name(), err))
		return
	}
	// Tidy drops what merely says that there is nothing.
	table, _ := r.set.Table(md)
	wire, err := table.AppendWire(nil, text, translate.Tidy)
	if err != nil {
		r.Failures = append(r.Failures, fmt.Sprintf("%s %s, tidy: %v", kind, md.Name(), err))
		return
	}
	if !mayKeep(wire) {
		return
	}
	places, err := kept(md, wire)
	if err != nil {
		r.Failures = append(r.Failures, fmt.Sprintf("%s %s, catch-all: %v", kind, md.Name(), err))
		return
	}
	class := ""
	for _, p := range places {
		if p.Why == Null {
			if class == "" {
				class = "nulls"
			}
			continue
		}
		class = "more"
		r.Drift[p]++
	}
	if class != "" {
		r.Kept[class]++
	}
}

// roundTrip makes sure that JSON → wire → JSON gives the same value.
func (r *replay) roundTrip(md protoreflect.MessageDescriptor, text []byte) error {
	table, err := r.set.Table(md)
	if err != nil {
		return err
	}
	wire, err := table.AppendWire(nil, text, translate.Exact)
	if err != nil {
		return err
	}
	back, err := table.AppendJSON(nil, wire, translate.JSONOptions{})
	if err != nil {
		return err
	}
	same, err := sameValue(text, back)
	if err == nil && !same {
		err = fmt.Errorf("another value came back")
	}
	return err
}

// sameValue compares two JSON values by the reference's measure.
func sameValue(a, b []byte) (bool, error) {
	if quickly(a, b) {
		return true, nil
	}
	x, err := reference.Canonical(a)
	if err != nil {
		return false, err
	}
	y, err := reference.Canonical(b)
	return x == y, err
}
