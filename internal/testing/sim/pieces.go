package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
	"unicode/utf16"
)

// piece is an event of an answer that the agent streams.
type piece struct {
	json string
	// place is where it happened: they count from 1.
	place int
	// text: it is what a size before it counts. id: it has an id. timed: the CLI says when it happened; its place is known of no other.
	text, id, timed bool
	arrived         bool // the CLI has sent it
	copied          bool // and again
	got             bool // the reader has it
}

// happening makes the events of an answer in the order in which they happen, by the CLI's clock.
type happening struct {
	w       *world
	rng     *rand.Rand
	at      time.Time
	size    int  // of the response so far
	units   bool // which counts units of UTF-16, not bytes
	own     bool // the members are in the order that the CLI has
	sized   bool // the next event is a size
	steady  bool // the model does not pause
	streams string
	longer  string // what each text ends with
	texts   int
	order   []*piece
}

// newHappening begins shortly before the CLI's clock shows another second, minute, hour, day, month or year: it may be set forward.
func (w *world) newHappening(rng *rand.Rand) *happening {
	now := time.Now().UTC().Add(w.skew)
	next := []time.Time{
		now.Truncate(time.Second).Add(time.Second), now.Truncate(time.Minute).Add(time.Minute), now.Truncate(time.Hour).Add(time.Hour),
		time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, time.UTC),
		time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC), time.Date(now.Year()+1, 1, 1, 0, 0, 0, 0, time.UTC),
	}[rng.IntN(6)]
	h := &happening{w: w, rng: rng, at: next.Add(-time.Duration(rng.IntN(30)) * time.Millisecond)}
	if h.at.Before(now) {
		h.at = now
	}
	h.units, h.own = rng.IntN(2) == 0, rng.IntN(2) == 0
	h.streams = []string{"message", "message", "reasoning", "tool_call"}[rng.IntN(4)]
	return h
}

// words are the ends of pieces of text.
var words = []string{" ", "é ", "\n", `"`, "𝄞", `","timestamp":"2000-01-01T00:00:00.000Z"`}

// pieces has the model say a number of pieces: of each its size happens before its text. Four events happen in a millisecond, if
// the model does not pause.
func (h *happening) pieces(count int) {
	for range count {
		if h.texts++; h.texts%4 == 0 {
			h.at = h.at.Add(time.Millisecond)
		}
		switch h.rng.IntN(40) {
		case 0: // the model pauses
			if !h.steady {
				h.at = h.at.Add(time.Duration(h.rng.IntN(300)) * time.Millisecond)
			}
		case 1, 2, 3:
			if !h.sized {
				h.notice()
			}
		}
		h.sized = false
		text := strconv.Itoa(h.texts) + words[h.rng.IntN(len(words))] + h.longer
		if h.units {
			h.size += len(utf16.Encode([]rune(text)))
		} else {
			h.size += len(text)
		}
		h.happens("assistant.streaming_delta", fmt.Sprintf(`{"totalResponseSizeBytes":%d}`, h.size), false)
		if h.texts == 1 {
			h.happens("assistant."+h.streams+"_start", `{"messageId":"m"}`, false)
		}
		quoted, _ := json.Marshal(text) // a text
		member := "deltaContent"
		if h.streams == "tool_call" {
			member = "inputDelta"
		}
		h.happens("assistant."+h.streams+"_delta", fmt.Sprintf(`{"messageId":"m","%s":%s}`, member, quoted), true)
	}
}

// again has the model begin another response, after a pause, which gets longer than the one before.
func (h *happening) again() {
	h.at = h.at.Add(leastPause + time.Duration(h.rng.IntN(300))*time.Millisecond)
	before := h.size
	for h.size = 0; h.size < before+20; { // what comes early then does not fit into the one before
		h.pieces(1)
	}
}

// leastPause is a pause by which the bridge can know another response from the one before.
const leastPause = 60 * time.Millisecond

// notice has something happen that is no part of the response.
func (h *happening) notice() {
	switch h.rng.IntN(4) {
	case 0:
		h.happensTo(`"agentId":"helper",`, "assistant.message_delta", `{"messageId":"h","deltaContent":"help"}`)
	case 1:
		h.happensTo(`"agentId":"helper",`, "assistant.streaming_delta", `{"totalResponseSizeBytes":100000}`)
	default:
		h.happens("pending_messages.modified", fmt.Sprintf(`{"n":%d}`, len(h.order)), false)
	}
}

func (h *happening) happens(kind, data string, text bool) {
	h.happensTo("", kind, data)
	h.order[len(h.order)-1].text = text
}

// happensTo makes an event of an agent. A few have no id, or no time in the form that the CLI has.
func (h *happening) happensTo(agent, kind, data string) {
	w, id, at := h.w, "", h.at.Format(timestamp)
	p := &piece{place: w.streamed.count + len(h.order) + 1, id: true, timed: true}
	if id = w.uuid(); kind == "pending_messages.modified" && !h.steady {
		switch h.rng.IntN(8) {
		case 0:
			p.id, id = false, ""
		case 1:
			p.timed, at = false, []string{"", h.at.Format(time.RFC3339), h.at.Format("2006-01-02 15:04:05.000Z"), "2031-0a-01T00:00:00.000Z"}[h.rng.IntN(4)]
		}
	}
	if p.json = eventJSON(id, at, agent, kind, true, data); h.own {
		p.json = ownJSON(id, at, agent, kind, data)
	}
	h.order = append(h.order, p)
	w.streamed.pieces[p.json] = p
}

// ownJSON is an ephemeral event with its members in the order that the CLI has.
func ownJSON(id, timestamp, agent, eventType, data string) string {
	text := `{"type":"` + eventType + `","data":` + data + `,"ephemeral":true`
	if id != "" {
		text += `,"id":"` + id + `"`
	}
	if text += `,` + agent + `"timestamp":"` + timestamp + `"`; len(id)%2 == 0 {
		return text + `,"parentId":"00000000-0000-4000-8000-000000000000"}`
	}
	return text + `,"parentId":null}`
}
