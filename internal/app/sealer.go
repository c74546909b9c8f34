package app

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/sealing"
)

// DefaultSealingTTL is the default of Config.SealingTTL.
const DefaultSealingTTL = 24 * time.Hour

// sealer encrypts credentials with keys that a reload replaces. Without keys it seals nothing. It implements
// sessions.Sealer.
type sealer struct{ now atomic.Pointer[sealKeys] }

type sealKeys struct {
	keys *sealing.Keys // nil without a file
	ttl  time.Duration
}

func (s *sealer) Seal(text []byte, session string) []byte {
	if k := s.now.Load().keys; k != nil {
		return k.Seal(text, session)
	}
	return nil
}

func (s *sealer) Open(sealed []byte, session string) ([]byte, error) {
	if k := s.now.Load().keys; k != nil {
		return k.Open(sealed, session)
	}
	return nil, sealing.ErrSealed
}

func (s *sealer) TTL() time.Duration { return s.now.Load().ttl }

// readSealing reads the keys that a configuration names.
func (c *Config) readSealing() (*sealKeys, error) {
	out := &sealKeys{ttl: c.SealingTTL}
	if c.SealingKeys == "" {
		return out, nil
	}
	text, err := os.ReadFile(c.SealingKeys)
	if err == nil {
		out.keys, err = sealing.Parse(string(text))
	}
	return out, err
}
