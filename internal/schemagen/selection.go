package schemagen

import (
	"fmt"
	"strings"
)

// emitRow selects methods to write out. Events and the overlay always are.
type emitRow struct {
	Pattern string // a method; * stands for any text
	Reason  string
}

// emitRows is what is written out at present. The ledger covers everything, so
// that further methods can be added without renumbering.
var emitRows = []emitRow{
	{"connect", "handshake"},
	{"ping", "health"},
	{"models.list", "RuntimeService"},
	{"account.getQuota", "RuntimeService"},
	{"tools.list", "RuntimeService"},
	{"sessions.list", "sessions of other processes"},
	{"sessions.checkInUse", "asked before a resume"},
	{"sessions.readPersistedEvents", "history without loading"},
	{"session.send", "turns"},
	{"session.abort", "turns"},
	{"session.log", "SessionService.Log"},
	{"session.model.*", "SessionService.SetModel"},
	{"session.mode.*", "agent mode"},
	{"session.options.update", "configuration after create"},
	{"session.tools.*", "the union of the participants' tools"},
	{"session.permissions.*", "permission answers and approve-all"},
	{"session.commands.*", "slash commands"},
	{"session.ui.*", "answers to user input, elicitation and the like"},
	{"*.handlePending*", "answers to what the CLI asked"},
	{"*.respond*", "answers to what the CLI asked"},
	{"session.mcp.oauth.*", "answers about MCP sign-in"},
	{"session.mcp.headers.*", "answers about MCP headers"},
	{"session.eventLog.*", "history and the journal's reconciliation"},
	{"session.shell.*", "shells that outlive a turn"},
	{"session.plan.*", "plans"},
	{"session.history.*", "history"},
	{"session.usage.*", "usage"},
	{"session.metadata.*", "metadata"},
	{"session.queue.*", "queued prompts"},
}

// selects reports whether a method is written out, and by which rows.
func selects(x *Method) ([]int, bool) {
	var rows []int
	for i, row := range emitRows {
		if matches(row.Pattern, x.Name) {
			rows = append(rows, i)
		}
	}
	return rows, rows != nil || x.Root == RootCallback || x.Overlay
}

// matches compares a method's name with a pattern in which * stands for any text.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	if !strings.HasPrefix(name, parts[0]) {
		return false
	}
	name = name[len(parts[0]):]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return strings.HasSuffix(name, parts[len(parts)-1])
}

// Selection is the part of a plan that is written out.
type Selection struct {
	types    map[string]bool
	services []*Service
}

// selectAll takes everything.
func (pl *Plan) selectAll() *Selection {
	s := &Selection{types: map[string]bool{}, services: pl.Services}
	for _, name := range pl.Roots {
		pl.closure(name, s.types)
	}
	for _, svc := range pl.Services {
		for _, r := range svc.RPCs {
			pl.closure(r.Request.Name, s.types)
			pl.closure(r.Response.Name, s.types)
		}
	}
	return s
}

// selectRows takes the events, the overlay, the callbacks and what emitRows names.
func (pl *Plan) selectRows(strict bool) (*Selection, error) {
	s := &Selection{types: map[string]bool{}}
	hit := make([]bool, len(emitRows))
	for _, name := range pl.Roots {
		pl.closure(name, s.types)
	}
	for _, svc := range pl.Services {
		part := *svc
		part.RPCs = nil
		for _, r := range svc.RPCs {
			rows, ok := selects(r.Method)
			if !ok {
				continue
			}
			for _, i := range rows {
				hit[i] = true
			}
			part.RPCs = append(part.RPCs, r)
			pl.closure(r.Request.Name, s.types)
			pl.closure(r.Response.Name, s.types)
		}
		if part.RPCs != nil {
			s.services = append(s.services, &part)
		}
	}
	for i, ok := range hit {
		if !ok && strict {
			return nil, fmt.Errorf("emit: %q selects no method", emitRows[i].Pattern)
		}
	}
	return s, nil
}

// closure adds a type and all it needs.
func (pl *Plan) closure(name string, types map[string]bool) {
	if types[name] || pl.Messages[name] == nil && pl.Enums[name] == nil {
		return
	}
	types[name] = true
	if m := pl.Messages[name]; m != nil {
		for _, f := range m.Fields {
			pl.closure(f.Type, types)
		}
	}
}
