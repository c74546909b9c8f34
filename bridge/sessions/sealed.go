package sessions

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

// Sealer encrypts the credentials of sessions, so that they can be stored. It is safe for concurrent use.
type Sealer interface {
	// Seal encrypts a text of a session.
	Seal(text []byte, session string) []byte
	// Open decrypts what Seal returned for the same session.
	Open(sealed []byte, session string) ([]byte, error)
	// TTL is how long after it was sealed a text may be opened; 0 for no limit.
	TTL() time.Duration
}

// secrets are the secrets of a session, as they are sealed.
type secrets struct {
	At time.Time `json:"at"`
	// Session is what session.Save returned.
	Session json.RawMessage `json:"session,omitempty"`
	// Token and Env are those of the profile, if Lacks has their paths.
	Token string            `json:"token,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
}

// seal adds the secrets that a record lacks, encrypted, if the store has a Sealer.
func (st *Store) seal(key string, r *record, secret json.RawMessage, p runtime.Profile) {
	if st.cfg.Sealer == nil || secret == nil && len(r.Lacks) == 0 {
		return
	}
	in := secrets{At: time.Now(), Session: secret}
	if slices.Contains(r.Lacks, profileToken) {
		in.Token = p.Token
	}
	if slices.Contains(r.Lacks, profileEnv) {
		in.Env = p.Env
	}
	text, _ := json.Marshal(in) // JSON values and strings
	r.Sealed = st.cfg.Sealer.Seal(text, key)
}

// unseal returns the secrets that a record lacks, and removes their paths from what it lacks. It returns the zero value
// if they were not sealed, or cannot be opened any more.
func (st *Store) unseal(key string, r *record) (out secrets) {
	if len(r.Sealed) == 0 || st.cfg.Sealer == nil {
		return secrets{}
	}
	text, err := st.cfg.Sealer.Open(r.Sealed, key)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		st.log.Warn("the credentials of a session are lost: no key opens them", "session_id", key)
		return secrets{}
	}
	if ttl := st.cfg.Sealer.TTL(); ttl > 0 && time.Since(out.At) > ttl {
		st.log.Info("the stored credentials of a session have expired", "session_id", key)
		return secrets{}
	}
	r.Lacks = nil
	return out
}

// addTo adds the secrets of a profile.
func (s secrets) addTo(p *runtime.Profile) {
	if s.Token != "" {
		p.Token = s.Token
	}
	if s.Env != nil {
		p.Env = maps.Clone(s.Env)
	}
}
