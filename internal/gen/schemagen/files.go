package schemagen

import "strings"

// The files that belong to no namespace. Those of the core have no services: copilot.bridge.v1 imports them, and they
// import nothing outside the core.
const (
	eventFile  = "session_event" // core: the envelope
	eventTypes = "event_types"   // core: types that only events use
	commonFile = "common"        // core: types of several of its parts
	extraFile  = "common_extra"  // types that several services use, and the core does not
)

// coreParts has the file of a core type with a single kind of users, by the prefix of the users' file.
var coreParts = []struct{ prefix, file string }{
	{eventTypes, eventTypes},
	{"callback_", "callback_types"},
	{"session", "session_types"},
	{"", "runtime_types"},
}

// assignFiles decides which file every message and enum is written to. Elements of the core go to the file of the part
// that uses them, or to the common file; all others go to the file of their only user, or to the extra file. Imports
// have no cycles by construction, since the types that a common type uses have the same users and more, and the core
// is closed. The events are a separate user, and no type reaches them through the envelope.
func (pl *Plan) assignFiles(core map[string]bool) {
	users := pl.users()
	home := func(name string) string {
		switch {
		case name == eventUnion:
			return eventFile
		case core[name]:
			return coreFile(users[name])
		case len(users[name]) == 1:
			return sortedKeys(users[name])[0]
		}
		return extraFile
	}
	for name, m := range pl.Messages {
		m.File = home(name)
	}
	for name, e := range pl.Enums {
		e.File = home(name)
	}
}

// coreFile is the file of the only part that the users belong to, else the common one.
func coreFile(users map[string]bool) string {
	file := ""
	for user := range users {
		part := corePart(user)
		if file != "" && part != file {
			return commonFile
		}
		file = part
	}
	return file
}

func corePart(user string) string {
	for _, p := range coreParts {
		if strings.HasPrefix(user, p.prefix) {
			return p.file
		}
	}
	return commonFile
}

// users returns, for every message and enum, the files whose rpcs or roots reach it.
func (pl *Plan) users() map[string]map[string]bool {
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
	return users
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
