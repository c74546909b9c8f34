package app

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster"
)

const (
	// usesEvery is how often a replica tells the others what tenants use, if that has changed, and reads what they have
	// told.
	usesEvery = time.Second
	// maxUses bounds the tenants that a replica tells of. Those with the most sessions count.
	maxUses = 500
)

// elsewhere is what tenants use at the other replicas, as far as they have told. It is safe for concurrent use. Its one
// goroutine is that of the caller of run.
type elsewhere struct {
	sums atomic.Pointer[sums]
}

type sums struct {
	tenants quota.Uses
	all     quota.Use
}

// of returns the use of a tenant, and of all tenants together. It does not wait.
func (e *elsewhere) of(tenant string) (own, all quota.Use) {
	if s := e.sums.Load(); s != nil {
		return s.tenants[tenant], s.all
	}
	return own, all
}

// run tells the other replicas what uses returns, and reads what they have told, until ctx ends.
func (e *elsewhere) run(ctx context.Context, node *cluster.Node, uses func() quota.Uses) {
	tick := time.NewTicker(usesEvery)
	defer tick.Stop()
	var told []byte
	for {
		if state := encodeUses(uses()); !bytes.Equal(state, told) {
			node.Tell(state)
			told = state
		}
		e.read(node.Told())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// read adds up what the other replicas have told.
func (e *elsewhere) read(states []json.RawMessage) {
	s := &sums{tenants: quota.Uses{}}
	for _, text := range states {
		var told quota.Uses
		if json.Unmarshal(text, &told) == nil { // a state of another version counts as none
			s.tenants.Add(told)
		}
	}
	s.all = s.tenants.Sum()
	e.sums.Store(s)
}

// encodeUses returns the form of uses for other replicas, without tenants that use nothing.
func encodeUses(uses quota.Uses) []byte {
	var tenants []string
	for tenant, use := range uses {
		if use != (quota.Use{}) {
			tenants = append(tenants, tenant)
		}
	}
	if len(tenants) > maxUses {
		slices.SortFunc(tenants, func(a, b string) int { return uses[b].Sessions - uses[a].Sessions })
		tenants = tenants[:maxUses]
	}
	out := quota.Uses{}
	for _, tenant := range tenants {
		out[tenant] = uses[tenant]
	}
	text, _ := json.Marshal(out) // numbers by strings, in the order of the names
	return text
}
