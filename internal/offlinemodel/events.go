package offlinemodel

import (
	"bufio"
	"encoding/json"
	"net/http"
)

// streamBuffer is how much of a stream is gathered before it is written. A burst of deltas is written in such pieces; a
// pause flushes.
const streamBuffer = 32 << 10

// eventWriter writes server-sent events. The first error sticks.
type eventWriter struct {
	out     *bufio.Writer
	control *http.ResponseController
	err     error
}

func newEventWriter(w http.ResponseWriter) *eventWriter {
	return &eventWriter{out: bufio.NewWriterSize(w, streamBuffer), control: http.NewResponseController(w)}
}

// event writes one named event.
func (e *eventWriter) event(name string, data any) {
	e.write("event: ", name, "\ndata: ")
	e.json(data)
	e.write("\n\n")
}

// json writes a value where an event's text stands.
func (e *eventWriter) json(data any) {
	text, err := json.Marshal(data)
	if err != nil {
		e.fail(err)
		return
	}
	e.write(string(text))
}

func (e *eventWriter) write(pieces ...string) {
	for _, piece := range pieces {
		if e.err != nil {
			return
		}
		if _, err := e.out.WriteString(piece); err != nil {
			e.fail(err)
		}
	}
}

func (e *eventWriter) flush() {
	if e.err != nil {
		return
	}
	if err := e.out.Flush(); err != nil {
		e.fail(err)
		return
	}
	if err := e.control.Flush(); err != nil {
		e.fail(err)
	}
}

func (e *eventWriter) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// quote is a string as JSON.
func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		// Strings always marshal.
		return `""`
	}
	return string(quoted)
}
