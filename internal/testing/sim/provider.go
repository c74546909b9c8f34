package sim

import (
	"bytes"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// provision says what the session uses models by.
type provision uint8

const (
	anyModel    provision = iota // it is of no interest
	ownProvider                  // a provider with a key
	ownToken                     // a token for GitHub
)

// provider is what the session uses models by.
type provider struct {
	url, key *values // the key of a provider, or the token
	// secret is what the bridge has saved apart; lost: a process of the bridge began without it, and no caller has given the key
	// again. losses counts how often it began so.
	secret []byte
	lost   bool
	losses int
}

// secretMark is in each key, and in nothing else.
const secretMark = "SECRET"

// newProvider returns that of a variant.
func newProvider(v variant) provider {
	p := provider{url: newValues(), key: newValues()}
	if v.provision() == ownProvider {
		p.url = &values{now: []string{"url0"}, saved: []string{"url0"}}
	}
	if v.provision() != anyModel {
		p.key = &values{now: []string{secretMark + "0"}, saved: []string{secretMark + "0"}}
	}
	return p
}

// credentials are the members of a configuration that have the key.
func (p *provider) credentials(v variant, key string) (o jsonobj.Object) {
	switch v.provision() {
	case ownProvider:
		o.Set("provider", fmt.Appendf(nil, `{"type":"openai","baseUrl":%q,"apiKey":%q}`, p.url.one(), key))
	case ownToken:
		o.SetString("gitHubToken", key)
	}
	return o
}

// provide has a caller change the provider, its key or the token.
func (w *world) provide(n int) {
	w.mu.Lock()
	if w.settings.changing || w.variant.provision() == anyModel {
		w.mu.Unlock()
		return
	}
	w.settings.changing = true
	w.ids++
	id := w.ids
	w.mu.Unlock()
	key := fmt.Sprint(secretMark, id)
	if w.variant.provision() == ownToken {
		w.setToken(key, n)
		return
	}
	url, model := fmt.Sprint("url", id), ""
	switch n % 4 {
	case 0:
		w.setKey(key)
		return
	case 1:
		url = refused
	case 2:
		model = fmt.Sprint("model", id)
	}
	ran := w.s.Turns().Running()
	w.setting("the provider", w.provider.url, url, func(l *life) error {
		err := l.s.Settings().SetProvider(l.ctx, func(p jsonobj.Object) (jsonobj.Object, error) {
			p.SetString("baseUrl", url)
			return p, nil
		}, model)
		w.mu.Lock()
		defer w.mu.Unlock()
		switch reason := fault.ReasonOf(err); {
		case err == nil && url == refused:
			return fmt.Errorf("the CLI refuses the provider, and the caller is told nothing of it")
		case err == nil && model != "" && w.lives(l):
			w.settings.model.be(model)
		case reason == fault.SessionBusy && !ran && len(w.prompts) == 0:
			return fmt.Errorf("nothing runs: %w", err)
		case reason == fault.SessionBusy, reason == fault.SessionRefused && url == refused, w.lacks(err):
			return errUnset
		}
		return err
	})
}

// errUnset says that nothing is set, rightly.
var errUnset = fmt.Errorf("nothing is set")

// lacks reports whether an error may say that the session lacks its key. The caller holds the world's lock.
func (w *world) lacks(err error) bool {
	return w.provider.losses > 0 && fault.ReasonOf(err) == fault.CredentialsNeeded
}

// awaitsKey waits for a while if the session lacks its key, without which it cannot be loaded, and reports whether it does. A session
// that is deleted gets none.
func (w *world) awaitsKey(l *life) bool {
	w.mu.Lock()
	lost := w.lives(l) && w.provider.lost && !w.deletion.done
	w.mu.Unlock()
	if lost {
		select {
		case <-time.After(time.Second):
		case <-l.ctx.Done():
		}
	}
	return lost
}

// setToken has a caller set another token, or a key that the session has no provider for.
func (w *world) setToken(token string, n int) {
	if n%6 == 1 {
		w.setting("a key", w.provider.url, refused, func(l *life) error {
			err := l.s.Settings().SetCredentials(l.ctx, text1("apiKey", token), "")
			if fault.ReasonOf(err) == fault.InvalidField {
				return errUnset
			}
			return err
		})
		return
	}
	w.setKey(token)
}

// setKey has a caller set another key, or the token.
func (w *world) setKey(key string) {
	w.setting("the key", w.provider.key, key, func(l *life) error { return w.setsKey(l, key) })
}

// setsKey is setKey that waits.
func (w *world) setsKey(l *life, key string) error {
	var secrets jsonobj.Object
	token := ""
	if w.variant.provision() == ownToken {
		token = key
	} else {
		secrets = text1("apiKey", key)
	}
	err := l.s.Settings().SetCredentials(l.ctx, secrets, token)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && w.lives(l) {
		w.provider.lost = false
	}
	return err
}

// loseKey has the next process of the bridge begin without what is saved apart, if it is lost or if the one before had not
// saved it.
func (w *world) loseKey(lost bool) {
	p := &w.provider
	if lost && !w.variant.provides() {
		p.secret = nil
	}
	if p.lost = w.variant.provision() != anyModel && p.secret == nil; p.lost {
		p.losses++
	}
}

// regain has a caller give the session its key again, which the bridge did not have when it began.
func (w *world) regain() {
	l := w.life
	if state := w.s.Snapshot().GetState(); w.s.Loader().State() == session.Unloaded &&
		(state == bridgev1.SessionState_SESSION_STATE_CREDENTIALS_NEEDED) != w.provider.lost {
		w.fail("the session shows %v, and its key is lost: %v", state, w.provider.lost)
	}
	if !w.provider.lost {
		return
	}
	w.mu.Lock()
	w.settings.changing = true
	w.ids++
	key := fmt.Sprint(secretMark, w.ids)
	w.mu.Unlock()
	l.tasks.Go(func() {
		for range 10 * reviveTries {
			err := w.sets(l, "the key", w.provider.key, key, func(l *life) error { return w.setsKey(l, key) })
			usable := l.s.Loader().Usable() == nil
			w.mu.Lock()
			lost := w.lives(l) && w.provider.lost && usable
			if lost && err != nil {
				w.failures = append(w.failures, err.Error())
			}
			w.settings.changing = w.settings.changing || lost
			w.mu.Unlock()
			if !lost {
				return
			}
			select {
			case <-time.After(time.Second):
			case <-l.ctx.Done():
			}
		}
	})
	synctest.Wait() // it comes before other callers
}

// checkSaved: what the bridge saves has no secret, and says so. The caller holds the world's lock.
func (w *world) checkSaved(text, secret []byte) {
	if bytes.Contains(text, []byte(secretMark)) {
		w.failures = append(w.failures, fmt.Sprintf("a secret is saved: %s", text))
	}
	var waits []byte
	for _, a := range w.order {
		if !a.open {
			continue
		}
		if waits == nil {
			waits = pending.Find(text)
		}
		if a.p.Kind.Survives != bytes.Contains(waits, []byte(a.p.ID)) {
			w.failures = append(w.failures, fmt.Sprintf("callback %s waits, and what is saved has %s", a.p.ID, waits))
		}
	}
	has := w.variant.provision() != anyModel || w.variant.provides()
	if (secret != nil) != (has && !w.provider.lost) {
		w.failures = append(w.failures, fmt.Sprintf("what is saved has apart %q", secret))
	}
	if !has && len(text)%8 > 0 { // reading it takes time
		return
	}
	if missing := session.SavedMissing(text); len(missing) > 0 != has {
		w.failures = append(w.failures, fmt.Sprintf("what is saved lacks %v", missing))
	}
	if err := session.CheckSaved(text); err != nil {
		w.failures = append(w.failures, "what is saved cannot be restored: "+err.Error())
	}
}

// checkProvider: the process that has the session has the provider. The caller holds the world's lock.
func (w *world) checkProvider(c *cli) {
	if w.variant.provides() {
		return // see checkHeaders
	}
	key := c.declared.Provider.APIKey
	if w.variant.provision() == ownToken {
		key = c.declared.GitHubToken
	}
	if p := &w.provider; !p.url.may(c.declared.Provider.BaseURL) || !p.key.may(key) {
		w.failures = append(w.failures, fmt.Sprintf("the CLI has the provider %q with %q, not %q with %q", c.declared.Provider.BaseURL, key,
			p.url.now, p.key.now))
	}
}
