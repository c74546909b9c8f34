package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	v1 "github.com/copilot-grpc/copilot-grpc/e2e/conformance/conformancev1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// runner runs one case.
type runner struct {
	control  func(name string)
	endpoint *v1.Endpoint
	clients  map[string]*copilot.Client

	mu           sync.Mutex
	changed      chan struct{} // closed and replaced when something below changes
	sessions     map[string]*copilot.Session
	observations []*v1.Observation
	open         map[string]bool // gates
	background   map[string]*background
}

// background is a step that runs while others do.
type background struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func newRunner(control func(string)) *runner {
	return &runner{
		control: control, clients: map[string]*copilot.Client{}, changed: make(chan struct{}),
		sessions: map[string]*copilot.Session{}, open: map[string]bool{}, background: map[string]*background{},
	}
}

func (r *runner) run(c *v1.Case) *v1.Result {
	r.endpoint = c.GetEndpoint()
	result := &v1.Result{Name: c.GetName()}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, step := range c.GetSteps() {
		sr := &v1.StepResult{}
		result.Steps = append(result.Steps, sr)
		if step.GetBackground() == "" {
			r.step(ctx, step, sr)
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		b := &background{cancel: cancel, done: make(chan struct{})}
		r.background[step.GetBackground()] = b
		go func() {
			defer close(b.done)
			r.step(ctx, step, sr)
		}()
	}
	for _, client := range r.clients {
		_ = client.Close() // a server of a script may be gone
	}
	cancel()
	for _, b := range r.background {
		<-b.done
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.observations {
		result.Observations = append(result.Observations, proto.CloneOf(o))
	}
	return result
}

func (r *runner) step(ctx context.Context, step *v1.Step, result *v1.StepResult) {
	if err := r.act(ctx, step, result); err != nil {
		result.Error = errorOf(ctx, err)
	}
}

var errUnsupported = errors.New("the library has no such operation")

func (r *runner) act(ctx context.Context, step *v1.Step, result *v1.StepResult) error {
	switch a := step.GetAction().(type) {
	case *v1.Step_Connect:
		return r.connect(ctx, a.Connect)
	case *v1.Step_Open:
		return r.openSession(ctx, a.Open)
	case *v1.Step_List:
		return r.list(ctx, a.List, result)
	case *v1.Step_Cancel:
		r.background[a.Cancel.GetStep()].cancel()
	case *v1.Step_Await:
		<-r.background[a.Await.GetStep()].done
	case *v1.Step_AwaitObservation:
		return r.await(ctx, func() bool { return r.count(a.AwaitObservation) >= int(a.AwaitObservation.GetCount()) })
	case *v1.Step_Release:
		r.update(func() { r.open[a.Release.GetGate()] = true })
	case *v1.Step_Control:
		r.control(a.Control.GetName())
	case *v1.Step_Watch:
		return r.watch(ctx, a.Watch)
	case *v1.Step_Inbox:
		return r.inbox(ctx, a.Inbox)
	default:
		return r.onSession(ctx, step, result)
	}
	return nil
}

func (r *runner) onSession(ctx context.Context, step *v1.Step, result *v1.StepResult) error {
	if r.session(sessionOf(step)) == nil {
		return fmt.Errorf("there is no session %q", sessionOf(step))
	}
	switch a := step.GetAction().(type) {
	case *v1.Step_Send:
		_, err := r.session(a.Send.GetSession()).Send(ctx, a.Send.GetText(), sendOptions(a.Send)...)
		return err
	case *v1.Step_SendAndWait:
		out, err := r.session(a.SendAndWait.GetSession()).SendAndWait(ctx, a.SendAndWait.GetText(),
			sendOptions(a.SendAndWait)...)
		result.Outcome = outcomeOf(out)
		return err
	case *v1.Step_Run:
		return r.runTurn(ctx, a.Run, result)
	case *v1.Step_Events:
		return r.events(ctx, a.Events, result)
	case *v1.Step_Abort:
		running, err := r.session(a.Abort.GetSession()).Abort(ctx)
		result.TurnWasRunning = running
		return err
	case *v1.Step_Resolve:
		return r.resolve(ctx, a.Resolve)
	case *v1.Step_Get:
		info, err := r.session(a.Get.GetSession()).Get(ctx)
		if err != nil {
			return err
		}
		result.Text = strings.ToUpper(string(info.State))
		return nil
	case *v1.Step_Delete:
		return r.session(a.Delete.GetSession()).Delete(ctx)
	case *v1.Step_Disconnect:
		return r.session(a.Disconnect.GetSession()).Disconnect(ctx)
	case *v1.Step_Close:
		return r.session(a.Close.GetSession()).Close()
	case *v1.Step_SetTools:
		tools := r.tools(a.SetTools.GetSession(), a.SetTools.GetTools())
		return r.session(a.SetTools.GetSession()).SetTools(ctx, tools...)
	case *v1.Step_Labels:
		labels, err := r.session(a.Labels.GetSession()).UpdateLabels(ctx, a.Labels.GetSet(), a.Labels.GetRemove()...)
		result.Labels = labels
		return err
	case *v1.Step_Usage:
		return r.usage(ctx, a.Usage, result)
	case *v1.Step_AwaitEnd:
		s := r.session(a.AwaitEnd.GetSession())
		select {
		case <-s.Done():
			return s.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errUnsupported
}

func (r *runner) connect(ctx context.Context, a *v1.Connect) error {
	var opts []copilot.Option
	if file := r.endpoint.GetCaFile(); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		opts = append(opts, copilot.WithTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}))
	}
	switch {
	case a.GetChangingToken():
		calls := new(atomic.Int64)
		opts = append(opts, copilot.WithTokenSource(func(context.Context) (string, error) {
			return fmt.Sprintf("token-%d", calls.Add(1)), nil
		}))
	case a.GetTokenFile() != "":
		opts = append(opts, copilot.WithTokenSource(copilot.TokenFromFile(a.GetTokenFile())))
	case r.endpoint.GetToken() != "":
		opts = append(opts, copilot.WithToken(r.endpoint.GetToken()))
	}
	if a.GetObserveLog() {
		opts = append(opts, copilot.WithLogger(slog.New(logged{r})))
	}
	policy := copilot.ReconnectPolicy{
		MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, GiveUpAfter: 30 * time.Second,
	}
	if ms := a.GetGiveUpAfterMs(); ms > 0 {
		policy.GiveUpAfter = time.Duration(ms) * time.Millisecond
	}
	client, err := copilot.Dial(ctx, r.endpoint.GetTarget(), append(opts, copilot.WithReconnect(policy))...)
	if err == nil {
		r.clients[a.GetClient()] = client
	}
	return err
}

func (r *runner) openSession(ctx context.Context, a *v1.Open) error {
	client, id := r.clients[a.GetClient()], a.GetId()
	if client == nil {
		return fmt.Errorf("there is no client %q", a.GetClient())
	}
	if a.GetIdOf() != "" {
		id = r.session(a.GetIdOf()).ID()
	}
	opts := r.options(a)
	var s *copilot.Session
	var err error
	switch a.GetHow() {
	case v1.Open_CREATE:
		opts.ID = id
		s, err = client.CreateSession(ctx, opts)
	case v1.Open_RESUME:
		s, err = client.ResumeSession(ctx, id, opts)
	case v1.Open_OPEN_OR_CREATE:
		s, err = client.OpenSession(ctx, id, opts)
	case v1.Open_JOIN:
		s, err = client.JoinSession(ctx, id, opts)
	default:
		s = client.Session(id)
	}
	if err == nil {
		r.update(func() { r.sessions[a.GetSession()] = s })
	}
	return err
}

// sessionOf is the name of a step's session.
func sessionOf(step *v1.Step) string {
	m := step.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("action"))
	action, _ := m.Get(field).Message().Interface().(interface{ GetSession() string })
	return action.GetSession()
}

// session is the session with a name; nil if it was not opened.
func (r *runner) session(name string) *copilot.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[name]
}

func (r *runner) list(ctx context.Context, a *v1.List, result *v1.StepResult) error {
	opts := copilot.ListOptions{Filter: &copilot.SessionFilter{Labels: a.GetLabels()}}
	for info, err := range r.clients[a.GetClient()].ListSessions(ctx, opts) {
		if err != nil {
			return err
		}
		r.mu.Lock()
		for name, s := range r.sessions {
			if s.ID() == info.ID {
				result.Sessions = append(result.Sessions, name)
			}
		}
		r.mu.Unlock()
	}
	slices.Sort(result.Sessions)
	return nil
}

func sendOptions(a *v1.Send) []copilot.SendOption {
	var opts []copilot.SendOption
	for _, attachment := range a.GetAttachments() {
		if path := attachment.GetPath(); path != "" {
			opts = append(opts, copilot.AttachPath(path))
			continue
		}
		mimeType, name := attachment.GetMimeType(), attachment.GetName()
		if data := attachment.GetStream(); data != nil {
			opts = append(opts, copilot.AttachReader(bytes.NewReader(data), mimeType, name))
			continue
		}
		opts = append(opts, copilot.AttachBytes(attachment.GetData(), mimeType, name))
	}
	if a.GetTimeoutMs() > 0 {
		opts = append(opts, copilot.WithTimeout(time.Duration(a.GetTimeoutMs())*time.Millisecond))
	}
	if a.GetImmediate() {
		opts = append(opts, copilot.Immediately())
	}
	return opts
}

func (r *runner) runTurn(ctx context.Context, a *v1.Run, result *v1.StepResult) error {
	turn := r.session(a.GetSession()).Run(ctx, a.GetText())
	var text strings.Builder
	streamed := map[string]bool{}
	for ev, err := range turn.Events() {
		switch data := ev.GetEvent().GetData().(type) {
		case *cliv1.SessionEvent_AssistantMessageDelta:
			streamed[data.AssistantMessageDelta.GetMessageId()] = true
			text.WriteString(data.AssistantMessageDelta.GetDeltaContent())
		case *cliv1.SessionEvent_AssistantMessage:
			if !streamed[data.AssistantMessage.GetMessageId()] {
				text.WriteString(data.AssistantMessage.GetContent())
			}
		}
		if e := eventOf(ev, err); e != nil && !a.GetDeltas() &&
			(len(a.GetTypes()) == 0 || slices.Contains(a.GetTypes(), e.GetType())) {
			result.Events = append(result.Events, e)
		}
	}
	if a.GetDeltas() {
		result.Text = text.String()
	}
	out, err := turn.Outcome()
	result.Outcome = outcomeOf(out)
	return err
}

func (r *runner) events(ctx context.Context, a *v1.Events, result *v1.StepResult) error {
	s := r.session(a.GetSession())
	var opts []copilot.EventsOption
	if len(a.GetTypes()) > 0 {
		opts = append(opts, copilot.OfTypes(a.GetTypes()...))
	}
	switch a.GetFrom() {
	case v1.Events_BEGINNING:
		opts = append(opts, copilot.FromBeginning())
	case v1.Events_NOW:
		opts = append(opts, copilot.FromNow())
	}
	sequence := s.Events(ctx, opts...)
	if a.GetHistory() {
		sequence = s.History(ctx, opts...)
	}
	for ev, err := range sequence {
		e := eventOf(ev, err)
		if e == nil {
			return err
		}
		result.Events = append(result.Events, e)
		if n := len(result.Events); n == int(a.GetPauseAfter()) {
			r.wait(ctx, r.observe(a.GetSession(), "events", "", ""), a.GetGate())
		} else if n == int(a.GetCount()) {
			break
		}
		if a.GetUntil() != "" && e.GetType() == a.GetUntil() {
			break
		}
	}
	return nil
}

func (r *runner) resolve(ctx context.Context, a *v1.Resolve) error {
	s := r.session(a.GetSession())
	answer, err := copilot.AnswerTool(a.GetToolText())
	if err != nil {
		return err
	}
	switch a.GetPermission() {
	case "approve":
		answer = copilot.AnswerPermission(copilot.ApproveOnce())
	case "reject":
		answer = copilot.AnswerPermission(copilot.Reject("Permission denied."))
	}
	id := a.GetCallbackId()
	for id == "" {
		pending, err := s.Pending(ctx)
		if err != nil {
			return err
		}
		if len(pending) > 0 {
			id = pending[0].ID
		}
	}
	return s.Resolve(ctx, id, answer)
}

func (r *runner) watch(ctx context.Context, a *v1.Watch) error {
	count := 0
	for change, err := range r.clients[a.GetClient()].WatchSessions(ctx, nil) {
		if err != nil {
			return err
		}
		if strings.EqualFold(string(change.Kind), a.GetChange()) {
			if count++; count == int(a.GetCount()) {
				break
			}
		}
	}
	return nil
}

// update changes what await looks at.
func (r *runner) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

// await waits for something of this type to hold.
func (r *runner) await(ctx context.Context, holds func() bool) error {
	for {
		r.mu.Lock()
		ok, changed := holds(), r.changed
		r.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// count counts observations. The caller holds mu.
func (r *runner) count(a *v1.AwaitObservation) (n int) {
	for _, o := range r.observations {
		if o.GetKind() == a.GetKind() && (a.GetName() == "" || o.GetName() == a.GetName()) &&
			(!a.GetWithdrawn() || o.GetWithdrawn()) {
			n++
		}
	}
	return n
}
