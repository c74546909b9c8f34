package schemagen

// The files that belong to no namespace.
const (
	commonFile = "common"
	eventFile  = "session_event"
	eventTypes = "event_types"
)

// assignFiles decides which file every message and enum is written to: the file of its only user, else the common one.
// Imports have no cycles by construction, since the types that a common type uses have the same users and more. The
// events are a separate user, and no type reaches them through the envelope.
func (pl *Plan) assignFiles() {
	users := map[string]map[string]bool{}
	for _, s := range pl.Services {
		for _, r := range s.RPCs {
			pl.reach(s.File, r.Request.Name, users)
			pl.reach(s.File, r.Response.Name, users)
		}
	}
	for _, f := range pl.Messages[eventUnion].Fields {
		pl.reach(eventTypes, f.Type, users)
	}
	for _, name := range pl.Roots {
		if users[name] == nil && name != eventUnion {
			pl.reach(pl.Model.defs[name].Home, name, users)
		}
	}
	home := func(name string) string {
		if name == eventUnion {
			return eventFile
		}
		if len(users[name]) == 1 {
			return sortedKeys(users[name])[0]
		}
		return commonFile
	}
	for name, m := range pl.Messages {
		m.File = home(name)
	}
	for name, e := range pl.Enums {
		e.File = home(name)
	}
}

func (pl *Plan) reach(user, name string, users map[string]map[string]bool) {
	if name == eventUnion || users[name][user] || pl.Messages[name] == nil && pl.Enums[name] == nil {
		return
	}
	if users[name] == nil {
		users[name] = map[string]bool{}
	}
	users[name][user] = true
	if m := pl.Messages[name]; m != nil {
		for _, f := range m.Fields {
			pl.reach(user, f.Type, users)
		}
	}
}
