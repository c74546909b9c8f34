package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
)

// values are those that a part of the session's configuration may have.
type values struct {
	now, saved []string
}

// be notes the value that the part has now.
func (v *values) be(value string) { v.now = []string{value} }

// add notes that a list has one more element.
func (v *values) add(value string) {
	now := []string{}
	for _, before := range v.now {
		now = append(now, before+" "+value)
	}
	v.now = now
}

// one returns one of the values.
func (v *values) one() string { return v.now[len(v.now)-1] }

// may reports whether the part may have a value.
func (v *values) may(value string) bool {
	return slices.Contains(v.now, value)
}

func newValues() *values { return &values{now: []string{""}, saved: []string{""}} }

// settings are what callers set in the session by calls of their own.
type settings struct {
	model, tools, mode, paths, labels *values
	// interests are the values of the interest with each handle: held or not.
	interests map[string]*values
	handles   []string // of interests, which their callers hold
	labelled  int      // changes of labels that watchers were told
	changing  bool     // a call has not returned
}

func newSettings() settings {
	return settings{
		model: newValues(), tools: newValues(), mode: newValues(), paths: newValues(), labels: newValues(),
		interests: map[string]*values{},
	}
}

func (s *settings) all(p *provider) []*values {
	all := []*values{s.model, s.tools, s.mode, s.paths, s.labels, p.url, p.key}
	for _, handle := range slices.Sorted(maps.Keys(s.interests)) {
		all = append(all, s.interests[handle])
	}
	return all
}

// save notes that the bridge has saved the session.
func (s *settings) save(p *provider) {
	for _, v := range s.all(p) {
		v.saved = v.now
	}
}

// restart notes that the bridge has ended: what it had not saved may be lost.
func (s *settings) restart(p *provider) {
	s.changing = false
	for _, v := range s.all(p) {
		v.now = slices.Compact(slices.Sorted(slices.Values(slices.Concat(v.now, v.saved))))
	}
}

// The methods of settings that the bridge repeats. One mode replaces another; paths are added.
const (
	modeMethod = "session.permissions.setMode"
	pathMethod = "session.permissions.paths.add"
	refused    = "refused"
)

// interesting is a type of events that the CLI sends on request.
const interesting = "session.custom_notification"

// set has a caller set something in the session.
func (w *world) set(n int) {
	w.mu.Lock()
	if w.settings.changing {
		w.mu.Unlock()
		return
	}
	w.settings.changing = true
	w.ids++
	id := w.ids
	w.mu.Unlock()
	switch n % 7 {
	case 0:
		w.setModel(fmt.Sprint("model", id))
	case 1:
		w.setTools(fmt.Sprint("x", id), n)
	case 2:
		w.apply(modeMethod, "mode", fmt.Sprint("mode", id), w.settings.mode)
	case 3:
		w.apply(modeMethod, "mode", refused, w.settings.mode)
	case 4:
		w.apply(pathMethod, "path", fmt.Sprint("path", id), w.settings.paths)
	case 5:
		w.label(fmt.Sprint("label", id), n)
	case 6:
		w.register(n)
	}
}

// setting makes a call of a caller beside the run. If it succeeds, a part of the configuration has a value.
func (w *world) setting(what string, v *values, value string, set func(l *life) error) {
	l := w.life
	w.do(func() error { return w.sets(l, what, v, value, set) })
}

// sets is setting that waits for the call.
func (w *world) sets(l *life, what string, v *values, value string, set func(l *life) error) error {
	w.mu.Lock()
	crashes := w.crashes
	w.mu.Unlock()
	err := set(l)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.lives(l) {
		return nil
	}
	w.note("a caller sets %s to %q: %v", what, value, err)
	w.settings.changing = false
	switch reason := fault.ReasonOf(err); {
	case err == nil && v == w.settings.paths:
		v.add(value)
	case err == nil && value != refused:
		v.be(value)
	case err == nil, err == errUnset, w.lacks(err), w.crashes != crashes, reason == fault.RuntimeLost, reason == fault.Timeout, w.isGone(err):
	default:
		return fmt.Errorf("setting %s: %w", what, err)
	}
	return nil
}

func (w *world) setModel(model string) {
	w.setting("the model", w.settings.model, model, func(l *life) error {
		_, _, err := l.s.Settings().SetModel(l.ctx, text1("modelId", model))
		return err
	})
}

func text1(key, value string) (o jsonobj.Object) {
	o.SetString(key, value)
	return o
}

// setTools has a caller replace the session's own tools: one more, no more, or one that a participant has.
func (w *world) setTools(name string, n int) {
	var tools []config.Tool
	if w.variant.own() > 0 {
		tools = []config.Tool{tool(callersTool), tool(permitted)}
	}
	if n%3 == 0 {
		name = ""
	} else {
		tools = append(tools, config.Tool{Name: name, JSON: fmt.Appendf(nil, `{"name":%q}`, name)})
	}
	taken := false
	w.mu.Lock()
	if n%2 == 1 && len(w.seats) > 0 && w.variant.own() == 0 && w.seats[0].presence == present {
		tools, taken, name = append(tools, tool(w.seats[0].tool)), true, refused
	}
	w.mu.Unlock()
	w.setting("the tools", w.settings.tools, name, func(l *life) error {
		_, err := l.s.Settings().SetTools(l.ctx, tools)
		if !taken {
			return err
		}
		if fault.ReasonOf(err) != fault.ToolNameConflict {
			return fmt.Errorf("a tool gets the name of a participant's: %w", err)
		}
		return nil
	})
}

// apply has a caller make a call that the bridge repeats.
func (w *world) apply(method, member, value string, v *values) {
	params := text1(member, value)
	keep := config.Keep{Key: "mode"}
	if method == pathMethod {
		keep.Key = ""
	}
	w.setting(member, v, value, func(l *life) error {
		_, _, err := l.s.Settings().Apply(l.ctx, method, params, keep)
		return err
	})
}

// label has a caller change the session's labels, or leave them as they are, or fail.
func (w *world) label(value string, n int) {
	switch n / 7 % 4 {
	case 1:
		value = w.settings.labels.one()
	case 2:
		value = refused
	}
	before := w.settings.labelled
	w.setting("the label", w.settings.labels, value, func(l *life) error {
		was := ""
		err := l.s.UpdateLabels(func(labels map[string]string) (map[string]string, error) {
			if was = labels["l"]; value == refused {
				return map[string]string{"l": refused}, errRefused
			}
			return map[string]string{"l": value}, nil
		})
		w.mu.Lock()
		defer w.mu.Unlock()
		if changes := w.settings.labelled - before; w.lives(l) && changes != 1 && value != refused && value != was {
			w.failures = append(w.failures, fmt.Sprintf("watchers are told %d times of another label", changes))
		}
		if value == refused && err == errRefused {
			err = nil
		}
		return err
	})
}

var errRefused = fmt.Errorf("refused")

// register has a caller begin or end an interest in events of a type.
func (w *world) register(n int) {
	held := w.settings.handles
	if n%2 == 1 && len(held) > 0 {
		handle := held[0]
		w.settings.handles = held[1:]
		w.setting("an interest", w.settings.interests[handle], "", func(l *life) error {
			l.s.Settings().Unregister(handle)
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.cli != nil { // it may have been sent the interest, and is not told of the end
				w.cli.settings.interestEnded = true
			}
			return nil
		})
		return
	}
	v := newValues()
	w.setting("an interest", v, interesting, func(l *life) error {
		handle, err := l.s.Settings().Register(l.ctx, interesting)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err == nil && w.lives(l) {
			w.settings.interests[handle] = v
			w.settings.handles = append(w.settings.handles, handle)
		}
		return err
	})
}

// interested reports whether a caller may have an interest.
func (s *settings) interested() bool {
	for _, v := range s.interests {
		if v.may(interesting) {
			return true
		}
	}
	return s.changing
}

// set takes what a caller sets. The process forgets it with the session.
func (c *cli) set(r request) bool {
	switch r.method {
	case "session.model.switchTo":
		c.declared.Model = r.params.ModelID
		c.emit("session.model_change", fmt.Sprintf(`{"newModel":%q}`, r.params.ModelID), -1)
	case modeMethod:
		if r.params.Mode == refused {
			c.reply(r, `{"success":false}`)
			return true
		}
		c.settings.mode = r.params.Mode
	case pathMethod:
		c.settings.paths += " " + r.params.Path
	case "session.eventLog.registerInterest":
		if r.params.EventType != interesting { // it is the bridge's own
			break
		}
		if c.settings.interest {
			c.w.failures = append(c.w.failures, "the process is told of an interest twice")
		}
		c.settings.interest = true
		if !c.w.settings.interested() && !c.settings.interestEnded && c.w.restarts == 0 {
			c.w.failures = append(c.w.failures, "the process is told of an interest that nobody has")
		}
	default:
		return false
	}
	c.reply(r, `{"success":true}`)
	return true
}

// processSettings are what callers have set in a process.
type processSettings struct {
	mode, paths string
	// interest: it knows of an interest. interestEnded: one has ended since it has the session.
	interest, interestEnded bool
}

// checkSettings: the process that has the session has what callers have set, also if others have set it in an earlier one.
func (w *world) checkSettings() {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, s := w.cli, &w.settings
	if s.changing {
		w.failures = append(w.failures, "a call that sets something does not return")
	}
	if c == nil || !c.loaded {
		return
	}
	var extra []string
	for _, t := range c.declared.Tools {
		if strings.HasPrefix(t.Name, "x") {
			extra = append(extra, t.Name)
		}
	}
	w.checkProvider(c)
	for _, is := range []struct {
		what, value string
		of          *values
	}{
		{"model", c.declared.Model, s.model}, {"tools", strings.Join(extra, ","), s.tools}, {"mode", c.settings.mode, s.mode},
		{"paths", c.settings.paths, s.paths},
	} {
		if !is.of.may(is.value) {
			w.failures = append(w.failures, fmt.Sprintf("the CLI has the %s %q, not %q", is.what, is.value, is.of.now))
		}
	}
	for _, v := range s.interests {
		if !c.settings.interest && !v.may("") {
			w.failures = append(w.failures, "the CLI does not know of an interest")
		}
	}
}
