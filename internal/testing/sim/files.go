package sim

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// pageSize is how many events a page of the record has.
const pageSize = 5

// page is what session.eventLog.read says.
type page struct {
	Events       []json.RawMessage `json:"events"`
	Cursor       string            `json:"cursor"`
	CursorStatus string            `json:"cursorStatus"`
	HasMore      bool              `json:"hasMore"`
}

// beginFile has the process go on with its record in another file, if the record has a message.
func (c *cli) beginFile() {
	if !c.loaded || !c.worked || !c.w.disk.known || c.phase != idle || c.active() {
		return
	}
	c.write()
	c.file = len(c.events)
	c.w.disk.file = c.file
	c.w.note("CLI begins a file behind %d events", c.file)
}

// newest is the newest file of the record, which begins with the name of the one before and a copy of an event in that.
func (c *cli) newest() (all []string) {
	if c.file > 0 {
		_, rest, _ := strings.Cut(c.events[c.file-1].json, ",")
		all = append(all, fmt.Sprintf(`{"id":%q,"timestamp":%q,"parentId":null,"type":"session.journal_link","data":{}}`, c.w.uuid(), c.w.now()),
			fmt.Sprintf(`{"id":%q,"checkpoint":true,%s`, c.w.uuid(), rest))
	}
	for _, e := range c.events[c.file:] {
		all = append(all, e.json)
	}
	return all
}

// readLog is a page of all files of the record.
func (c *cli) readLog(r request) {
	from, _ := strconv.Atoi(r.params.Cursor) // "" is the beginning
	to := min(from+pageSize, len(c.events))
	p := page{Cursor: strconv.Itoa(to), CursorStatus: "ok", HasMore: to < len(c.events)}
	for _, e := range c.events[from:to] {
		p.Events = append(p.Events, json.RawMessage(e.json))
	}
	text, _ := json.Marshal(p) // of JSON
	c.reply(r, string(text))
}
