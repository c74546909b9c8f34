package shim

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// needsCredentials is the reason for which a bridge that was restarted opens no session
// whose secrets it has forgotten. The shim has them yet.
const needsCredentials = "CREDENTIALS_NEEDED"

// profileMember is what the bridge calls the runtime profile among what it lacks.
const profileMember = "runtime_profile"

// regain prepares the next stream to give the bridge what it has forgotten: it resumes the
// session, which leaves no event, with those members of the program's configuration. It
// reports whether err asks for that and it was not tried already.
func (p *participant) regain(err error) bool {
	lacking := lacks(err)
	if len(lacking) == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started || p.start.GetResume() != nil {
		return false
	}
	r := &bridgev1.ResumeSessionRequest{
		SessionId: p.id, ContinuePendingWork: true, Lifetime: bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT,
		Options: &cliv1.SessionResumeExtras{DisableResume: proto.Bool(true)},
	}
	if slices.Contains(lacking, profileMember) {
		r.RuntimeProfile = p.profile
	}
	if r.Config, err = p.conn.server.tables.only(p.config, lacking); err != nil {
		p.conn.log.Warn("sending the configuration again failed", "session_id", p.id, "error", err)
		return false
	}
	p.start = proto.CloneOf(p.start)
	p.start.Session = &bridgev1.AttachStart_Resume{Resume: r}
	return true
}

// inherit takes over what the program said before, and has not said otherwise.
func (p *participant) inherit(config *cliv1.SessionConfig) {
	m := p.config.ProtoReflect()
	config.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if !m.Has(field) {
			m.Set(field, value)
		}
		return true
	})
}

// lacks lists the members of the configuration whose secrets the bridge says it lacks.
func lacks(err error) (members []string) {
	st, ok := status.FromError(err)
	if !ok || reasonOf(st) != needsCredentials {
		return nil
	}
	for _, d := range st.Details() {
		info, _ := d.(*errdetails.ErrorInfo)
		for path := range strings.SplitSeq(info.GetMetadata()["missing"], ",") {
			member, _, _ := strings.Cut(path, ".")
			if member != "" && !slices.Contains(members, member) {
				members = append(members, member)
			}
		}
	}
	return members
}

// only returns a configuration's members of some names.
func (t *tables) only(config *cliv1.SessionConfig, names []string) (*cliv1.SessionConfig, error) {
	text, err := t.write(config)
	if err != nil {
		return nil, err
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	for name := range members {
		if !slices.Contains(names, name) {
			delete(members, name)
		}
	}
	if text, err = json.Marshal(members); err != nil {
		return nil, err
	}
	out := &cliv1.SessionConfig{}
	return out, t.read(text, out)
}

// returning reports whether a call failed for what a participant is about to give the
// bridge again.
func (c *conn) returning(id string, err error) bool {
	st, ok := status.FromError(err)
	if !ok || reasonOf(st) != needsCredentials {
		return false
	}
	p := c.sessions.participant(id)
	return p != nil && !p.gone()
}

// invokeIn is invoke for a call about a session, which may have to wait for its participant.
func (c *conn) invokeIn(ctx context.Context, id string, call func() error) error {
	retry := newRetry(c.server.config.Grace)
	for {
		err := call()
		if err == nil || !c.returning(id, err) || !retry.wait(ctx) {
			return err
		}
	}
}
