package offlinemodel

// The finish reasons a script may name, in the words of chat completions.
const (
	finishStop      = "stop"
	finishLength    = "length"
	finishToolCalls = "tool_calls"
	finishFilter    = "content_filter"
)

var finishReasons = []string{finishStop, finishLength, finishToolCalls, finishFilter}

// blockKind says what a block of a reply is.
type blockKind int

const (
	blockText blockKind = iota
	blockReasoning
	blockToolCall
)

// block is a piece of a reply: consecutive text, consecutive reasoning, or one
// tool call.
type block struct {
	kind blockKind
	text string // text, reasoning, or the arguments of the call
	id   string // of the call
	name string // of the tool
}

// reply is what a wire API needs to know about a reply apart from its content.
type reply struct {
	id      string
	model   string
	created int64
	finish  string
	usage   Usage
}

// emitter sends a reply as it is being played. Content arrives as blocks: begin, any number of deltas, end. The writer
// remembers errors of the connection.
type emitter interface {
	start()
	begin(b block)
	delta(text string)
	end()
	finish(finish string, usage Usage)
}

// wire is one wire API.
type wire interface {
	// stream makes an emitter that writes server-sent events.
	stream(w *eventWriter, r reply) emitter
	// document is the whole reply as one JSON value.
	document(r reply, blocks []block) any
	// failure is the body of an error answer.
	failure(f *Failure) any
}

var wires = map[API]wire{
	APICompletions: completionsWire{},
	APIResponses:   responsesWire{},
	APIAnthropic:   anthropicWire{},
}

// collector is the emitter for clients that want one JSON document.
type collector struct {
	blocks []block
	buf    []byte
}

func (c *collector) start() {}

func (c *collector) begin(b block) {
	c.blocks = append(c.blocks, b)
	c.buf = nil
}

func (c *collector) delta(text string) { c.buf = append(c.buf, text...) }

func (c *collector) end() {
	c.blocks[len(c.blocks)-1].text = string(c.buf)
	c.buf = nil
}

func (c *collector) finish(string, Usage) {}
