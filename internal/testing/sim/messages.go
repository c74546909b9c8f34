package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// form is the form of a message.
type form int

const (
	plain     form = iota
	displayed      // the history shows another text
	medium         // two of these do not fit into what is stored together
	large          // it has a file of its own
	several        // it is three messages, of which one turn takes all
	secret         // its headers are secret
	own            // its headers take the place of the provider's
	forms
)

const (
	methodMessages = "session.sendMessages"
	// parts is how many messages several have.
	parts = 3
	// hidden is in the headers that must not be stored.
	hidden = "hidden-header"
)

// mediumSize and largeSize are sizes of texts, compared with outbox.MaxInLog.
const mediumSize, largeSize = 25 << 10, 66 << 10

// padding makes texts as long as their form.
var padding = map[form]string{medium: strings.Repeat("x", mediumSize), large: strings.Repeat("x", largeSize)}

// text is the text of a message of a prompt; the first one is named by the prompt alone.
func (p *prompt) text(n, part int) string {
	if part > 0 {
		return fmt.Sprintf("P%d.%d", n, part)
	}
	return fmt.Sprintf("P%d%s", n, padding[p.form])
}

// message is a prompt as the bridge gets it.
func (p *prompt) message(n int) session.Message {
	m := session.Message{Immediate: p.immediate, Request: p.request}
	if p.form == several {
		var all []map[string]string
		for part := range parts {
			all = append(all, map[string]string{"prompt": p.text(n, part)})
		}
		text, _ := json.Marshal(all) // of texts
		m.Method = methodMessages
		m.Params.Set("messages", text)
	} else {
		m.Params.SetString("prompt", p.text(n, 0))
	}
	switch p.form {
	case displayed:
		m.Params.SetString("displayPrompt", fmt.Sprintf("P%d shown", n))
	case secret, own:
		m.Override = p.form == own
		m.Params.Set("requestHeaders", json.RawMessage(`{"Authorization":"`+hidden+`"}`))
	}
	if p.immediate {
		m.Params.SetString("mode", "immediate")
	}
	return m
}

// sentMessage is one of the messages that the CLI receives.
type sentMessage struct{ Prompt, DisplayPrompt string }

// messages are those of a request.
func (r request) messages() []sentMessage {
	if r.method == methodMessages {
		return r.params.Messages
	}
	return []sentMessage{{r.params.Prompt, r.params.DisplayPrompt}}
}

// take takes a prompt, and replies.
func (c *cli) take(r request) {
	c.used = true
	in := input{n: continuation}
	for _, m := range r.messages() {
		in.ids = append(in.ids, c.w.uuid())
		in.texts = append(in.texts, m.Prompt)
		if m.DisplayPrompt != "" {
			in.texts[len(in.texts)-1] = m.DisplayPrompt
		}
	}
	if _, err := fmt.Sscanf(in.texts[0], "P%d", &in.n); err != nil {
		c.checkContinuation()
	} else {
		c.checkGiven(in, r)
	}
	switch {
	case c.shut: // it accepts messages and ignores them
	case r.params.Mode == "immediate":
		c.steering = append(c.steering, in)
	default:
		c.queue = append(c.queue, in)
	}
	if r.method == methodMessages {
		text, _ := json.Marshal(map[string]any{"messageIds": in.ids}) // of texts
		c.reply(r, string(text))
	} else {
		c.reply(r, fmt.Sprintf(`{"messageId":%q}`, in.ids[0]))
	}
}

// checkGiven: each time that a prompt is given to the agent, it is what the caller has sent. Of several messages those that the
// history has need not be given again.
func (c *cli) checkGiven(in input, r request) {
	p := c.w.prompts[in.n]
	fail := func(what string) {
		c.w.failures = append(c.w.failures, fmt.Sprintf("P%d is given without %s", in.n, what))
	}
	p.given++
	c.checkGivenOften(p)
	if p.removed {
		c.w.failures = append(c.w.failures, fmt.Sprintf("P%d is given to the agent, and a caller has removed it", in.n))
	}
	for _, text := range in.texts {
		if slices.ContainsFunc(c.events, func(e stored) bool { return e.isMessage() && e.data("content") == text }) {
			c.w.failures = append(c.w.failures, fmt.Sprintf("P%d is given to the agent again, and the record has it", in.n))
		}
	}
	isAbort := func(e stored) bool { return e.id() == p.abort }
	if p.abort != "" && !p.unread && p.sent && slices.ContainsFunc(c.events[:c.inherited], isAbort) {
		c.w.failures = append(c.w.failures, fmt.Sprintf("P%d is given to the agent, and the record has the abort that has removed it", in.n))
	}
	m := p.message(in.n)
	if p.form == several {
		var all []sentMessage
		_ = json.Unmarshal(m.Params.Get("messages"), &all) // of message
		if len(all) < len(r.params.Messages) || !slices.Equal(all[len(all)-len(r.params.Messages):], r.params.Messages) {
			fail("its messages")
		}
	} else if m.Params.String("prompt") != r.params.Prompt || m.Params.String("displayPrompt") != r.params.DisplayPrompt {
		fail("its text")
	}
	if want := m.Params.Get("requestHeaders"); string(want) != string(r.params.RequestHeaders) {
		fail("its headers")
	}
	if m.Params.String("mode") != r.params.Mode {
		fail("its mode")
	}
}

// withHeaders is the configuration of a provider with headers.
const withHeaders = `{"type":"openai","baseUrl":"http://localhost:1","headers":{"x-session":"1"}}`

// checkHeaders: the headers of a message take the place of those of the provider, if it is to be so, and for its turn only.
func (c *cli) checkHeaders(in input) {
	if !c.w.variant.provides() || in.n == continuation || c.w.prompts[in.n].immediate {
		return
	}
	if has := len(c.declared.Provider.Headers) > 0; has == (c.w.prompts[in.n].form == own) {
		c.w.failures = append(c.w.failures, fmt.Sprintf("P%d begins a turn, and the provider has its headers: %v", in.n, has))
	}
}

// setProvider adds the provider to a configuration.
func setProvider(o *jsonobj.Object) { o.Set("provider", json.RawMessage(withHeaders)) }
