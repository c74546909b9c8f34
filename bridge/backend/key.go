package backend

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Key identifies an idempotent request. Requests are the same only if all fields are equal, so tenants never share
// answers.
type Key struct {
	// Tenant is the tenant of the caller; empty for the owner of the host.
	Tenant string
	// Operation is the call, followed by a NUL and the session id for calls about one session.
	Operation string
	// ID is the request id that the caller chose.
	ID string
}

// Operations of copilot.bridge.v1. All other operations are methods of the CLI.
const (
	OpCreate      = "CreateSession"
	OpResume      = "ResumeSession"
	OpAttach      = "Attach"
	OpSend        = "Send"
	OpSendAndWait = "SendAndWait"
	// OpTurnEnd is the second half of a SendAndWait: the outcome of the turn that it started.
	OpTurnEnd = "SendAndWait end"
	OpRun     = "Run"
	OpResolve = "Resolve"
)

// Digest returns a SHA-256 of all fields. Stored names are made of it, so it stays the same in all versions.
func (k Key) Digest() []byte {
	digest := sha256.New()
	for _, part := range []string{k.Tenant, k.Operation, k.ID} {
		fmt.Fprintf(digest, "%d:%s", len(part), part)
	}
	return digest.Sum(nil)
}

// SessionID returns the id of the session that a request creates without naming it: a UUID that each repetition of the
// request has, too, wherever it arrives. It is empty for a request without an id.
func (k Key) SessionID() string {
	if k.ID == "" {
		return ""
	}
	u := k.Digest()[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80 // version 8, whose bits are the application's
	h := hex.EncodeToString(u)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
