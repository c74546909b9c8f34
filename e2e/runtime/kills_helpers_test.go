package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// killsPatience bounds a batch.
const killsPatience = 10 * time.Minute

// kills is a server whose provider is its own, so that sessions go on by themselves.
type kills struct {
	*harness.Daemon
	count *killCount
}

func newKills(t *testing.T, count *killCount) *kills {
	t.Helper()
	st := harness.NewScripted(t,
		harness.Rule{When: harness.WhenUser("slow "), WaitFor: "never", Reply: harness.Steps(harness.Say("never"))})
	text, err := json.Marshal(map[string]any{
		"type": "openai", "wireApi": "completions", "baseUrl": st.Config().GetProvider().GetBaseUrl(), "apiKey": "k",
		"headers": map[string]string{"X-Key": "k"},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "provider.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), killsPatience)
	t.Cleanup(cancel)
	st.Ctx = ctx
	return &kills{harness.NewDaemon(st, "--provider", "ours="+file), count}
}

// scenario is what goes on in a session when its prompts are acknowledged.
type scenario struct {
	name string
	// used: the session has had a turn; busy: one runs.
	used, busy bool
	// prompts are how many are sent.
	prompts int
	mode    cliv1.SendMode
	// attachment is the size of a blob that goes with each.
	attachment int
	// override: the prompt has headers in the place of the provider's.
	override bool
	// secrets: the provider is the session's own, so that a restart leaves it without.
	secrets bool
}

var scenarios = []scenario{
	{name: "idle", used: true, prompts: 1},
	{name: "first", prompts: 1},
	{name: "several", used: true, prompts: 3},
	{name: "queued", used: true, busy: true, prompts: 2},
	{name: "immediate", used: true, busy: true, prompts: 1, mode: cliv1.SendMode_SEND_MODE_IMMEDIATE},
	{name: "attachment", used: true, prompts: 1, attachment: 2 << 10},
	{name: "large attachment", used: true, prompts: 1, attachment: 1 << 20},
	{name: "queued attachment", used: true, busy: true, prompts: 1, attachment: 300 << 10},
	{name: "override", used: true, prompts: 1, override: true},
	{name: "secrets", used: true, prompts: 1, secrets: true},
	{name: "queued with secrets", used: true, busy: true, prompts: 1, secrets: true},
}

// killed is a session that a kill hits.
type killed struct {
	*kills
	scenario
	id    string
	label string
	after *bridgev1.Position
	asked []*bridgev1.SendRequest
	given []*bridgev1.SendResponse // nil if it was not acknowledged
	last  string                   // the event after the kill
	// known reports for each prompt whether the model got it before the kill.
	known []bool
}

// The victims of a kill.
const (
	killServer = iota
	killCLI
	killBoth
)

// round has prompts acknowledged in some sessions, kills, and looks what became of them.
func (k *kills) round(rnd *rand.Rand, seed int) {
	k.T.Helper()
	var sessions []*killed
	for i := range 4 {
		s := &killed{kills: k, scenario: scenarios[rnd.IntN(len(scenarios))], label: fmt.Sprintf("%d.%d", seed, i)}
		s.prepare()
		sessions = append(sessions, s)
	}
	victim, delay := []int{killServer, killServer, killCLI, killCLI,
		killBoth}[rnd.IntN(5)], time.Duration(rnd.Int64N(int64(100*time.Millisecond)))
	runtimes, err := k.Client.Runtimes().ListRuntimes(k.Ctx, &bridgev1.ListRuntimesRequest{})
	if err != nil {
		k.T.Fatal(err)
	}
	var sending sync.WaitGroup
	for _, s := range sessions {
		sending.Go(s.send)
	}
	sending.Wait()
	time.Sleep(delay) // the instant of the kill, not a synchronisation
	if victim != killServer {
		for _, rt := range runtimes.GetRuntimes() {
			_ = syscall.Kill(int(rt.GetPid()), syscall.SIGKILL)
		}
	}
	if victim != killCLI {
		k.Stop(syscall.SIGKILL)
	}
	for _, rt := range runtimes.GetRuntimes() {
		k.Eventually("the end of the CLI", func() bool { return !harness.Alive(rt.GetPid()) })
	}
	for _, s := range sessions {
		s.look()
	}
	if victim != killCLI {
		k.Start()
	}
	for _, s := range sessions {
		s.check(victim, fmt.Sprintf("seed %d, victim %d, %v after the answer, %s", seed, victim, delay, s.name))
	}
	k.count.add(func(c *killCount) { c.kills[victim]++ })
}

// prepare makes the session, and what goes on in it.
func (s *killed) prepare() {
	s.T.Helper()
	config, ref := s.Config(), "ours"
	if s.secrets {
		config.Provider.Headers, ref = map[string]string{"X-Key": "k"}, ""
	} else {
		config.Provider = nil
	}
	made, err := s.Client.Sessions().CreateSession(s.Ctx,
		&bridgev1.CreateSessionRequest{Config: config, ProviderRef: ref})
	if err != nil {
		s.T.Fatal(err)
	}
	s.id = made.GetSession().GetSessionId()
	if s.used {
		s.SayTo(s.id, "hello")
	}
	if s.busy {
		_, err := s.Client.Sessions().Send(s.Ctx,
			&bridgev1.SendRequest{SessionId: s.id, Prompt: &bridgev1.Prompt{Text: "slow " + s.label}})
		if err != nil {
			s.T.Fatal(err)
		}
		_, err = s.Model.WaitRequest(s.Ctx,
			func(r *offlinemodel.Request) bool { return userSays(r, "slow "+s.label) > 0 })
		if err != nil {
			s.T.Fatal(err)
		}
	}
	if _, at := s.Durable(s.id); len(at) > 0 {
		s.after = at[len(at)-1]
	}
	for i := range s.prompts {
		prompt := &bridgev1.Prompt{Text: fmt.Sprintf("prompt %s-%d.", s.label, i), Mode: s.mode}
		if s.attachment > 0 {
			prompt.Attachments = []*cliv1.Attachment{{Variant: &cliv1.Attachment_Blob{Blob: &cliv1.AttachmentBlob{
				MimeType: "image/png", Data: noise(s.T, s.attachment), DisplayName: proto.String("a.png"),
			}}}}
		}
		if s.override {
			prompt.RequestHeaders = map[string]string{"X-Mine": "m"}
			prompt.HeaderStrategy = bridgev1.HeaderStrategy_HEADER_STRATEGY_OVERRIDE
		}
		s.asked = append(s.asked,
			&bridgev1.SendRequest{SessionId: s.id, RequestId: fmt.Sprintf("%s-%d", s.label, i), Prompt: prompt})
	}
}

// send sends the prompts, one after the other.
func (s *killed) send() {
	for _, q := range s.asked {
		sent, err := s.Client.Sessions().Send(s.Ctx, q)
		if err != nil {
			s.T.Errorf("send in %s: %v", s.name, err)
		}
		s.given = append(s.given, sent)
	}
}

// look notes which prompts the model got before the kill.
func (s *killed) look() {
	for _, q := range s.asked {
		s.known = append(s.known, slices.ContainsFunc(s.Model.ModelRequests(), func(r offlinemodel.Request) bool {
			return userSays(&r, q.GetPrompt().GetText()) > 0
		}))
	}
}

// told is a reader's view.
type told struct {
	lost  map[string]bool   // messages
	moved map[string]string // messages, and what they are now
	ends  int               // turns that were reported as lost
	has   map[string]int    // texts of users' messages
	ended map[string]bool   // those whose turn has an end in the journal
}

// check looks what became of the prompts.
func (s *killed) check(victim int, what string) {
	s.T.Helper()
	repeat := func() (errs []error, moved []string) {
		for _, q := range s.asked {
			again, err := s.Client.Sessions().Send(s.Ctx, q)
			errs, moved = append(errs, err), append(moved, again.GetResentMessageId())
		}
		return errs, moved
	}
	if s.secrets && victim != killCLI {
		repeat() // nothing hangs for want of them
		_, err := s.Client.Sessions().ProvideCredentials(s.Ctx, &bridgev1.ProvideCredentialsRequest{
			SessionId: s.id,
			Provider:  &cliv1.ProviderConfig{ApiKey: proto.String("k"), Headers: map[string]string{"X-Key": "k"}},
		})
		if err != nil {
			s.T.Errorf("%s: credentials: %v", what, err)
		}
	}
	s.barrier()
	errs, moved := repeat()
	resumed, anew := s.read(s.after), s.read(nil)
	history := s.history()
	var order []int
	for i, q := range s.asked {
		text, id := q.GetPrompt().GetText(), s.given[i].GetMessageId()
		n := 0
		for at, one := range history {
			if one == text {
				n++
				order = append(order, at)
			}
		}
		in := copilot.IsReason(errs[i], bridgev1.ErrorReason_ERROR_REASON_SEND_UNCONFIRMED)
		lost := in && resumed.lost[id] && anew.lost[id]
		// The end of a turn is reported with it, or by a separate event.
		over := resumed.ended[text] || resumed.ends > 0 && anew.ends > 0
		fail := ""
		switch {
		case n > 1:
			fail = fmt.Sprintf("it is in the history %d times", n)
		case n == 0 && !lost:
			fail = "it is lost without a word"
		case n == 0 && errs[i] == nil:
			fail = "the repeated request says that all is well"
		case n == 1 && (errs[i] != nil || resumed.lost[id]) && !(s.secrets && victim != killCLI):
			fail = "it is in the history, and told as lost"
		case n == 1 && !over && !resumed.lost[id]:
			fail = "nobody is told that its turn is over"
		case moved[i] != "" && (resumed.moved[id] != moved[i] || anew.moved[id] != moved[i]):
			fail = "readers are not told its new id"
		case s.twice(text):
			fail = "a request to the model has it twice"
		}
		if fail != "" {
			s.T.Errorf("%s: %q (%s): %s; repeated %v %q; resumed %+v; anew %+v; history %q", what, text, id, fail,
				errs[i], moved[i], resumed, anew, history)
		}
		s.count.add(func(c *killCount) {
			c.prompts++
			add(&c.bad, fail != "")
			add(&c.once, n == 1)
			add(&c.resent, moved[i] != "")
			add(&c.again, moved[i] != "" && s.known[i])
			add(&c.told, n == 0 && lost)
			add(&c.unasked, n == 0 && lost && !s.known[i])
		})
	}
	if !slices.IsSorted(order) {
		s.T.Errorf("%s: the history has the prompts in another order: %q", what, history)
	}
	if _, err := s.Client.Sessions().DeleteSession(s.Ctx, &bridgev1.DeleteSessionRequest{SessionId: s.id}); err != nil {
		s.T.Errorf("%s: delete: %v", what, err)
	}
}

// barrier has a turn, which waits behind the prompts that the CLI gets again.
func (s *killed) barrier() {
	s.T.Helper()
	for i := range 5 {
		s.last = fmt.Sprintf("barrier %s.%d", s.label, i)
		out, err := s.Client.Session(s.id).SendAndWait(s.Ctx, s.last)
		if copilot.IsReason(err, bridgev1.ErrorReason_ERROR_REASON_SEND_UNCONFIRMED) {
			continue // it was on its way to the CLI that was killed
		}
		if err == nil {
			err = out.Err()
		}
		if err != nil {
			s.T.Fatalf("%s: %v", s.last, err)
		}
		return
	}
	s.T.Fatalf("%s: the CLI takes up nothing", s.last)
}

func add(n *int, one bool) {
	if one {
		*n++
	}
}
