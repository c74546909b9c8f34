package sessions

import (
	"encoding/json"
	"log/slog"
	"slices"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/session/usage"
)

// maxDeletedRows bounds the rows of a tenant's deleted sessions: ten models a day for a year. Above it the oldest rows
// are merged, so that the sums stay.
const maxDeletedRows = 3650

// DeletedUsage has what deleted sessions have used of models, by tenant. It is safe for concurrent use.
type DeletedUsage struct {
	directory Directory // nil keeps it in memory
	log       *slog.Logger

	mu      sync.Mutex // guards tenants alone
	tenants map[string]*tenantUsage
}

// tenantUsage is the usage of one tenant. mu is held while the file is read or written. Nothing is written before the file
// was read, which could overwrite it.
type tenantUsage struct {
	mu     sync.Mutex
	loaded bool
	rows   usage.Usage
}

// lock returns the usage of a tenant, which it reads at the first call, and after a failure at the next. The caller
// unlocks it.
func (d *DeletedUsage) lock(tenant string) *tenantUsage {
	d.mu.Lock()
	t := d.tenants[tenant]
	if t == nil {
		t = &tenantUsage{}
		d.tenants[tenant] = t
	}
	d.mu.Unlock()
	t.mu.Lock()
	if t.loaded || d.directory == nil {
		return t
	}
	text, err := d.directory.Usage(tenant)
	var rows usage.Usage
	if err == nil && text != nil {
		err = json.Unmarshal(text, &rows)
	}
	if err != nil {
		d.log.Error("reading the usage of deleted sessions failed", "tenant", tenant, "error", err)
		return t
	}
	t.loaded = true
	t.rows.Merge(rows, maxDeletedRows)
	return t
}

// add adds the usage of a deleted session and stores the sums. After a failure the next call stores them.
func (d *DeletedUsage) add(tenant string, of usage.Usage) {
	if len(of) == 0 {
		return
	}
	t := d.lock(tenant)
	defer t.mu.Unlock()
	t.rows.Merge(of, maxDeletedRows)
	if !t.loaded {
		return
	}
	text, err := json.Marshal(t.rows)
	if err == nil {
		err = d.directory.SaveUsage(tenant, text)
	}
	if err != nil {
		d.log.Error("saving the usage of deleted sessions failed", "tenant", tenant, "error", err)
	}
}

// Rows returns what the deleted sessions of a tenant have used.
func (d *DeletedUsage) Rows(tenant string) usage.Usage {
	t := d.lock(tenant)
	defer t.mu.Unlock()
	return slices.Clone(t.rows)
}
