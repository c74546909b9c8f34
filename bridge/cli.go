package bridge

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/passthrough"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/sending"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// cliHost is the bridge as the CLI's methods use it.
type cliHost struct{ finder }

// Visible implements passthrough.Host.
func (h cliHost) Visible(ctx context.Context) []*session.Session { return sessionsOf(h.b.visible(ctx)) }

// CheckNew implements passthrough.Host.
func (h cliHost) CheckNew(ctx context.Context, id string) error {
	return h.b.checkNew(ctx, h.b.tenants.CallerProfile(ctx), id)
}

// CheckOwn implements passthrough.Host.
func (h cliHost) CheckOwn(ctx context.Context, id string) error {
	return h.b.checkOwn(ctx, id, "session_id")
}

// Create implements passthrough.Host.
func (h cliHost) Create(ctx context.Context, id string, o session.Opening) (*session.Session, error) {
	b := h.b
	var err error
	if o.Config, err = b.underlying(ctx, o.Config); err != nil {
		return nil, fields.Rename(err, "config.", "")
	}
	release, err := b.admission.Session(caller.From(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	defer release()
	e, fresh := b.getOrCreate(ctx, id)
	if !fresh || e.Session.Journal().Inherited() { // of one whose state is gone
		b.abandon(e, fresh)
		return nil, exists(id)
	}
	b.fleet.SetProfile(e, b.tenants.CallerProfile(ctx))
	if _, err := e.Session.Create(ctx, o); err != nil {
		b.forget(e)
		return nil, err
	}
	b.saver.Save(e)
	return e.Session, nil
}

// Resume implements passthrough.Host.
func (h cliHost) Resume(ctx context.Context, id string, o session.Opening) (*session.Session, error) {
	b := h.b
	if e := b.known(ctx, id); e == nil || e.Session.Usable() != nil {
		release, err := b.admission.Session(caller.From(ctx).Tenant)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	e, fresh := b.getOrCreate(ctx, id)
	var err error
	if o.Config, err = b.restrained(ctx, o.Config); err == nil && fresh {
		o.Config, err = b.underlying(ctx, o.Config)
	}
	if err != nil {
		b.abandon(e, fresh)
		return nil, fields.Rename(err, "config.", "")
	}
	if fresh {
		b.fleet.SetProfile(e, b.tenants.CallerProfile(ctx))
	}
	if _, err := e.Session.Resume(ctx, o); err != nil {
		b.abandon(e, fresh)
		return nil, err
	}
	b.saver.Save(e)
	return e.Session, nil
}

// Disconnect implements passthrough.Host.
func (h cliHost) Disconnect(ctx context.Context, id string) error {
	_, err := h.b.DisconnectSession(ctx, &bridgev1.DisconnectSessionRequest{SessionId: id})
	return err
}

// Delete implements passthrough.Host.
func (h cliHost) Delete(ctx context.Context, id string) error {
	_, err := h.b.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: id})
	return err
}

// Forget implements passthrough.Host.
func (h cliHost) Forget(s *session.Session) {
	if e := h.b.entryOf(s); e != nil {
		h.b.forget(e)
	}
}

// CheckPrompt implements passthrough.Host.
func (h cliHost) CheckPrompt(tenant string, size int, field string) error {
	return h.b.admission.CheckPrompt(tenant, size, field)
}

// Submit implements passthrough.Host.
func (h cliHost) Submit(ctx context.Context, s *session.Session, m sending.Message) (sending.Sent, error) {
	return h.b.say(ctx, s, m)
}

// Profile implements passthrough.Host.
func (h cliHost) Profile(ctx context.Context, p *bridgev1.RuntimeProfile) (runtime.Profile, error) {
	return h.b.tenants.ReadProfile(ctx, p, "runtime_profile", "")
}

// Runtime implements passthrough.Host.
func (h cliHost) Runtime(ctx context.Context, id string, p *runtime.Profile) (passthrough.Runtime, error) {
	profile := h.b.tenants.CallerProfile(ctx)
	switch {
	case id != "":
		var err error
		if profile, err = h.b.home(ctx, id, nil); err != nil {
			return nil, err
		}
	case p != nil:
		profile = *p
	}
	rt, err := h.b.fleet.First(ctx, profile)
	if err != nil {
		return nil, err
	}
	return rt, nil
}
