// Package usage counts what a session uses of models, by day and model. It has no lock, clock or goroutine: the
// session's lock guards a Usage.
package usage

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
)

const (
	// maxRows bounds a Usage. Above it the oldest rows are merged, so that the sums stay.
	maxRows = 512
	// maxModel bounds the bytes of a model's id.
	maxModel = 256
)

// Row is the use of one model on one day.
type Row struct {
	Day   string `json:"day"` // in UTC, as 2006-01-02
	Model string `json:"model,omitempty"`
	Sums
}

// Sums are what was used.
type Sums struct {
	Turns      int64   `json:"turns,omitempty"`
	Requests   int64   `json:"requests,omitempty"`
	Input      int64   `json:"input,omitempty"` // tokens
	Output     int64   `json:"output,omitempty"`
	CacheRead  int64   `json:"cacheRead,omitempty"`
	CacheWrite int64   `json:"cacheWrite,omitempty"`
	Cost       float64 `json:"cost,omitempty"`
	Millis     int64   `json:"millis,omitempty"` // duration of the requests
}

// Add adds other sums.
func (s *Sums) Add(o Sums) {
	s.Turns += o.Turns
	s.Requests += o.Requests
	s.Input += o.Input
	s.Output += o.Output
	s.CacheRead += o.CacheRead
	s.CacheWrite += o.CacheWrite
	s.Cost += o.Cost
	s.Millis += o.Millis
}

// Usage has a row for each day and model, ordered by both. Its JSON is part of the session's saved form. The zero
// value is empty.
type Usage []Row

// Call is a request to a model.
type Call struct {
	Model string
	// Own reports that the model belongs to an endpoint of the user, of the type Endpoint.
	Own      bool
	Endpoint string
	// Finish is the reason why the model stopped; empty if it is unknown.
	Finish string
	// Failed reports that the call failed, with Status as the HTTP status; 0 if there is none.
	Failed bool
	Status int
	Sums
}

// Read returns the call that an event assistant.usage reports. Members that do not fit count as 0.
func Read(rec *journal.Record) Call {
	var d struct {
		Model, ProviderType, FinishReason                            string
		IsByok                                                       bool
		InputTokens, OutputTokens, CacheReadTokens, CacheWriteTokens float64
		Cost, Duration                                               float64
	}
	event.Data(rec, &d)
	return Call{Model: d.Model, Own: d.IsByok, Endpoint: d.ProviderType, Finish: d.FinishReason, Sums: Sums{
		Requests: 1, Input: tokens(d.InputTokens), Output: tokens(d.OutputTokens), Cost: min(max(0, d.Cost), maxNumber),
		CacheRead: tokens(d.CacheReadTokens), CacheWrite: tokens(d.CacheWriteTokens), Millis: tokens(d.Duration),
	}}
}

// ReadFailure returns the call that an event model.call_failure reports.
func ReadFailure(rec *journal.Record) Call {
	var d struct {
		Model, ProviderType    string
		IsByok                 bool
		DurationMs, StatusCode float64
	}
	event.Data(rec, &d)
	return Call{Model: d.Model, Own: d.IsByok, Endpoint: d.ProviderType, Failed: true, Status: int(tokens(d.StatusCode)),
		Sums: Sums{Millis: tokens(d.DurationMs)}}
}

// Add counts a call that ended at a time.
func (u *Usage) Add(c *Call, at time.Time) { u.add(at, c.Model, c.Sums) }

// EndTurn counts a turn that ended at a time, for the session's model. The session is saved at the end of a turn
// anyway.
func (u *Usage) EndTurn(at time.Time, model string) { u.add(at, model, Sums{Turns: 1}) }

// maxNumber bounds the numbers of the CLI, so that sums do not overflow: JSON, as which sessions are saved, has no infinite
// costs.
const maxNumber = 1 << 40

// tokens returns a number of the CLI that must not be negative.
func tokens(n float64) int64 { return int64(min(max(n, 0), maxNumber)) }

// add adds to the row of a day and a model.
func (u *Usage) add(at time.Time, model string, s Sums) {
	model = strings.ToValidUTF8(model[:min(len(model), maxModel)], "")
	u.addRow(Row{at.UTC().Format(time.DateOnly), model, s}, maxRows)
}

// Merge adds the rows of another Usage, and merges the oldest rows above a number of rows.
func (u *Usage) Merge(o Usage, limit int) {
	for _, row := range o {
		u.addRow(row, limit)
	}
}

// addRow adds to the row of the same day and model.
func (u *Usage) addRow(row Row, limit int) {
	i, found := slices.BinarySearchFunc(*u, row, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Model, b.Model))
	})
	if found {
		(*u)[i].Add(row.Sums)
	} else {
		*u = slices.Insert(*u, i, row)
	}
	if len(*u) > limit {
		u.mergeOldest()
	}
}

// mergeOldest merges the two oldest rows. Their row has the earlier day, and no model unless both have the same.
func (u *Usage) mergeOldest() {
	rows := *u
	rows[1].Add(rows[0].Sums)
	rows[1].Day = rows[0].Day
	if rows[0].Model != rows[1].Model {
		rows[1].Model = ""
	}
	*u = slices.Delete(rows, 0, 1)
}
