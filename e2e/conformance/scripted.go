package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// scripted is a server that follows the scripts of one case.
type scripted struct {
	server *grpc.Server
	proxy  *proxy
	served sync.WaitGroup

	mu    sync.Mutex
	calls []Call
	// playing counts scripts that have beats left.
	playing  int
	failures []string
	// texts are those of requests that a script named: "=NAME" in a receive stands for the same text everywhere.
	texts map[string]string
	// controls are the Controls that came, changed is closed at the next one.
	controls map[string]int
	changed  chan struct{}
}

// startScripted serves scripts behind the proxy's listener.
func startScripted(calls []Call, listener net.Listener, inner net.Listener, opts ...grpc.ServerOption) *scripted {
	s := &scripted{
		calls: append([]Call(nil), calls...), texts: map[string]string{}, controls: map[string]int{},
		changed: make(chan struct{}),
	}
	s.server = grpc.NewServer(append(opts, grpc.UnknownServiceHandler(s.serve))...)
	s.proxy = newProxy(listener, inner.Addr().Network(), inner.Addr().String())
	s.served.Go(func() { _ = s.server.Serve(inner) })
	return s
}

// close ends the server, and returns what clients did against the scripts.
func (s *scripted) close() error {
	s.server.Stop()
	s.proxy.close()
	s.served.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if !c.Every {
			s.failures = append(s.failures, "the client did not call "+c.Method+" again")
		}
	}
	if len(s.failures) > 0 {
		return errors.New(strings.Join(s.failures, "; "))
	}
	return nil
}

// control takes a Control of the driver.
func (s *scripted) control(name string) {
	if name == "cut" {
		s.proxy.cut()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.controls[name]++
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits for a Control that no other beat has waited for.
func (s *scripted) await(ctx context.Context, name string) error {
	for {
		s.mu.Lock()
		came, changed := s.controls[name] > 0, s.changed
		if came {
			s.controls[name]--
		}
		s.mu.Unlock()
		if came {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *scripted) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, fmt.Sprintf(format, args...))
	close(s.changed)
	s.changed = make(chan struct{})
}

// resolve replaces the names of texts in want. A name that is new stands for the text of got, which must not be empty.
func (s *scripted) resolve(want, got any) any {
	switch want := want.(type) {
	case map[string]any:
		object, _ := got.(map[string]any)
		resolved := make(map[string]any, len(want))
		for key, value := range want {
			resolved[key] = s.resolve(value, object[key])
		}
		return resolved
	case string:
		name, named := strings.CutPrefix(want, "=")
		if !named {
			return want
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, known := s.texts[name]; !known {
			s.texts[name], _ = got.(string)
		}
		if s.texts[name] == "" {
			return "~."
		}
		return s.texts[name]
	}
	return want
}

// script takes the next script of a method; false if there is none.
func (s *scripted) script(method string) (Call, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.calls {
		if c.Method != method {
			continue
		}
		if !c.Every {
			s.calls = append(s.calls[:i:i], s.calls[i+1:]...)
		}
		s.playing++
		return c, true
	}
	return Call{}, false
}

// serve serves any call.
func (s *scripted) serve(_ any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	name := full[strings.LastIndex(full, "/")+1:]
	method, err := methodNamed(name)
	if err != nil {
		return status.Error(codes.Unimplemented, err.Error())
	}
	call, ok := s.script(name)
	if !ok {
		s.fail("the client called %s, for which there is no script", name)
		return status.Error(codes.Unimplemented, name)
	}
	p := &play{scripted: s, stream: stream, method: method}
	return p.perform(call)
}

// play is one call that follows a script.
type play struct {
	*scripted
	stream   grpc.ServerStream
	method   protoreflect.MethodDescriptor
	received bool
	over     sync.Once
}

// finishTimeout bounds the wait for the rest of the scripts at the end of a case.
const finishTimeout = 10 * time.Second

func (p *play) perform(call Call) error {
	defer p.played()
	for i, beat := range call.Beats {
		over, err := p.beat(beat)
		if err != nil && beat.End == nil && (beat.Receive != nil || p.stream.Context().Err() == nil) {
			p.fail("%s, beat %d: %v", call.Method, i, err)
		}
		if over || err != nil {
			return err
		}
	}
	p.played()
	return p.finish()
}

// played notes, once, that the script has no beats left but the client's end.
func (p *play) played() {
	p.over.Do(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.playing--
		close(p.changed)
		p.changed = make(chan struct{})
	})
}

// finish waits until all scripts have been played, or a client has done something else.
func (s *scripted) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	for {
		s.mu.Lock()
		left, changed := s.playing, s.changed
		for _, c := range s.calls {
			if !c.Every {
				left++
			}
		}
		if len(s.failures) > 0 {
			left = 0
		}
		s.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s.fail("a script was not played to its end")
			return
		}
	}
}

// finish ends a call whose script is over: a unary call at once, a stream when the client has left.
func (p *play) finish() error {
	if !p.method.IsStreamingServer() {
		if !p.received {
			if _, err := p.receive(); err != nil {
				return err
			}
		}
		return nil
	}
	if !p.method.IsStreamingClient() {
		<-p.stream.Context().Done()
		return p.stream.Context().Err()
	}
	for {
		request, err := p.receive()
		if err != nil {
			return err
		}
		if field := frameOf(request); field == "leave" {
			closed := Beat{Send: map[string]any{"stream": map[string]any{
				"sessionId": "s1", "closed": map[string]any{"reason": "CLOSE_REASON_LEFT"},
			}}}
			return p.send(closed)
		} else if field != "" {
			p.fail("the client sent a frame that the script has not: %v", request)
		}
	}
}

// frameOf is the name of a request's frame.
func frameOf(m proto.Message) string {
	r := m.ProtoReflect()
	oneof := r.Descriptor().Oneofs().ByName("frame")
	if oneof == nil || r.WhichOneof(oneof) == nil {
		return ""
	}
	return string(r.WhichOneof(oneof).Name())
}

// receive receives a request that is no heartbeat.
func (p *play) receive() (proto.Message, error) {
	for {
		m, err := messageOf(p.method.Input())
		if err != nil {
			return nil, err
		}
		if err := p.stream.RecvMsg(m); err != nil {
			return nil, err
		}
		p.received = true
		if frameOf(m) != "heartbeat" {
			return m, nil
		}
	}
}

func (p *play) send(b Beat) error {
	if !p.received {
		if _, err := p.receive(); err != nil {
			return err
		}
	}
	for i := range max(b.Repeat, 1) {
		m, err := b.response(p.method.Output(), i+1)
		if err != nil {
			return err
		}
		if err := p.stream.SendMsg(m); err != nil {
			return err
		}
	}
	return nil
}

// beat does one thing. It returns true when that ends the call.
func (p *play) beat(b Beat) (bool, error) {
	ctx := p.stream.Context()
	switch {
	case b.Receive != nil:
		request, err := p.receive()
		if err != nil {
			return true, err
		}
		got, err := asJSON(request)
		if err == nil {
			if d := differ("request", p.resolve(b.Receive, got), got); d != "" {
				err = errors.New(d)
			}
		}
		return err != nil, err
	case b.Send != nil:
		return false, p.send(b)
	case b.Metadata != nil:
		md, _ := metadata.FromIncomingContext(ctx)
		for key, want := range b.Metadata {
			if got := strings.Join(md.Get(key), ","); got != want {
				return true, fmt.Errorf("the header %s is %q, want %q", key, got, want)
			}
		}
		return false, nil
	case b.Wait != "":
		return false, p.await(ctx, b.Wait)
	case b.Signal != "":
		p.control(b.Signal)
		return false, nil
	case b.CutAfter != nil:
		p.proxy.cutAfter(*b.CutAfter)
		return false, nil
	case b.Cut:
		p.proxy.cut()
		<-ctx.Done()
		return true, nil
	case b.Ended:
		p.played()
		<-ctx.Done()
		return true, nil
	case b.End != nil:
		return true, b.End.status()
	}
	return false, errors.New("an empty beat")
}

// status is the end as an error; nil for OK. It is what a server returns, and no failure of the script.
func (e *End) status() error {
	var code codes.Code
	if err := code.UnmarshalJSON([]byte(`"` + e.Code + `"`)); err != nil || code == codes.OK {
		return err
	}
	st := status.New(code, e.Message)
	var details []protoadapt.MessageV1
	if e.Reason != "" {
		about := map[string]string{"session_id": "s1"}
		details = append(details, &errdetails.ErrorInfo{Domain: "copilot-grpc", Reason: e.Reason, Metadata: about})
	}
	if e.Field != "" {
		violation := &errdetails.BadRequest_FieldViolation{Field: e.Field, Description: e.Message}
		violations := []*errdetails.BadRequest_FieldViolation{violation}
		details = append(details, &errdetails.BadRequest{FieldViolations: violations})
	}
	if details != nil {
		if with, err := st.WithDetails(details...); err == nil {
			st = with
		}
	}
	return st.Err()
}
