package server_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// tenanted is a server with the tenants acme, whose limits a test gives, and rival; each has the
// token of its name, with what a test puts behind it.
type tenanted struct {
	*servertest.Running
	t      *testing.T
	policy *policy.Store
	dir    string
}

// tokenOf is a caller's token.
func tokenOf(name string) string { return name + "-0123456789abcdef" }

func startTenanted(t *testing.T, limits string, c server.Config, services ...server.Service) *tenanted {
	t.Helper()
	s := &tenanted{t: t, dir: t.TempDir()}
	s.tokens("acme", "acme2", "rival")
	write(t, filepath.Join(s.dir, "policy"), []byte(`
version: 1
identity: {tokens: tokens}
tenants:
  acme: {members: [{token: acme, role: owner}, {token: acme2, role: observer}], limits: {`+limits+`}}
  rival: {members: [{token: rival, role: owner}]}
`))
	var err error
	if s.policy, err = policy.Open(filepath.Join(s.dir, "policy"), slog.New(slog.DiscardHandler),
		time.Now); err != nil {
		t.Fatal(err)
	}
	c.Policy, c.Listen = s.policy, []string{"127.0.0.1:0"}
	s.Running = servertest.Start(t, c, append(services, info{})...)
	return s
}

// tokens writes the tokens file: a line NAME, or "NAME expires=TIME".
func (s *tenanted) tokens(lines ...string) {
	s.t.Helper()
	var text strings.Builder
	for _, line := range lines {
		name, more, _ := strings.Cut(line, " ")
		sum := sha256.Sum256([]byte(tokenOf(name)))
		fmt.Fprintln(&text, name, hex.EncodeToString(sum[:]), more)
	}
	write(s.t, filepath.Join(s.dir, "tokens"), []byte(text.String()))
}

// as is a connection of a caller's own that has made a call; err is the call's.
func (s *tenanted) as(name string) (*grpc.ClientConn, error) {
	s.t.Helper()
	conn := s.Dial(s.t, 0, grpc.WithPerRPCCredentials(bearer(tokenOf(name))))
	return conn, s.call(conn)
}

func (s *tenanted) call(conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	_, err := bridgev1.NewRuntimeServiceClient(conn).GetServerInfo(ctx, &bridgev1.GetServerInfoRequest{})
	return err
}

// wire is a connection of a caller that has begun the call of stream 1.
func (s *tenanted) wire(name string) *wire {
	s.t.Helper()
	w := dialWire(s.t, s.Running)
	if err := w.call(1, serverInfo, map[string]string{"authorization": "Bearer " + tokenOf(name)}); err != nil ||
		!w.answers() {
		s.t.Fatalf("%s is turned away: %v", name, err)
	}
	return w
}

// limitOf is the limit that an error names.
func limitOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if q, ok := d.(*errdetails.QuotaFailure); ok {
			return q.GetViolations()[0].GetSubject()
		}
	}
	return ""
}

func wantLimit(t *testing.T, what string, err error, limit string) {
	t.Helper()
	if status.Code(err) != codes.ResourceExhausted || limitOf(err) != limit ||
		!strings.Contains(err.Error(), "limits."+limit) {
		t.Errorf("%s: %v; want the limit %s, and where it is set", what, err, limit)
	}
}

// eventually waits for something that another goroutine brings about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not in time", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A caller, and a tenant, has so many connections; what one gives back, it may have again.
func TestConnectionsOfCallersAndTenants(t *testing.T) {
	t.Parallel()
	s := startTenanted(t, "caller_connections: 2, connections: 3", server.Config{})
	first, err := s.as("acme")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.as("acme"); err != nil {
		t.Fatal(err)
	}
	third, err := s.as("acme")
	wantLimit(t, "the caller's third", err, "caller_connections")
	if _, err := s.as("acme2"); err != nil {
		t.Errorf("another caller: %v", err)
	}
	_, err = s.as("acme2")
	wantLimit(t, "the tenant's fourth", err, "connections")
	if _, err := s.as("rival"); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	_ = first.Close()
	eventually(t, "a connection that was given back", func() bool { return s.call(third) == nil })
}

// When there are too many connections, who has most loses one, and who comes gets in.
func TestSheddingFromTheLargest(t *testing.T) {
	t.Parallel()
	s := startTenanted(t, "", server.Config{Connections: server.Connections{Max: 6}})
	var many []*wire
	for range 6 {
		many = append(many, s.wire("acme"))
	}
	if _, err := s.as("rival"); err != nil {
		t.Errorf("the newcomer: %v", err)
	}
	// Of connections with calls it is the newest.
	if said := many[len(many)-1].ended(); !strings.Contains(said, "ENHANCE_YOUR_CALM") ||
		!strings.Contains(said, "max_connections") {
		t.Errorf("the one that is closed is told %q", said)
	}
	for i, w := range many[:len(many)-1] {
		if !w.answers() {
			t.Errorf("connection %d was closed too", i)
		}
	}
}

// half sends bytes of a message of 16 MiB on stream 1 of a connection, and returns when the
// server has them.
func half(t *testing.T, w *wire, bytes int) {
	t.Helper()
	if err := w.WriteData(1, false, []byte{0, 0, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	for sent := 0; sent < bytes; sent += 16 << 10 {
		if err := w.WriteData(1, false, make([]byte, 16<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if !w.answers() {
		t.Fatal("the server is gone")
	}
}

// A caller whose rights end loses its connections, and what it had half sent on them.
func TestRevokedConnections(t *testing.T) {
	t.Parallel()
	for name, revoke := range map[string]func(s *tenanted){
		"token withdrawn": func(s *tenanted) { s.tokens("acme2", "rival") },
		"member no more":  func(*tenanted) {},
		"token expired":   func(s *tenanted) { s.tokens("acme expires=2001-01-01T00:00:00Z", "acme2", "rival") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startTenanted(t, "", server.Config{})
			w, other := s.wire("acme"), s.wire("rival")
			half(t, w, 512<<10)
			revoke(s)
			members := "[{token: acme, role: owner}]"
			if name != "token expired" {
				members = "[{token: acme2, role: observer}]"
			}
			write(t, filepath.Join(s.dir, "policy"), []byte("version: 1\nidentity: {tokens: tokens}\ntenants:\n"+
				"  acme: {members: "+members+"}\n  rival: {members: [{token: rival, role: owner}]}\n"))
			if err := s.policy.Reload(); err != nil {
				t.Fatal(err)
			}
			if said := w.ended(); said == "" {
				t.Error("the caller is not told why")
			}
			if !other.answers() {
				t.Error("another tenant's connection is closed too")
			}
		})
	}
}

// A token that expires while its connection is open ends it, with no new policy.
func TestExpiredConnections(t *testing.T) {
	t.Parallel()
	s := startTenanted(t, "", server.Config{})
	s.tokens("acme expires="+time.Now().Add(2*time.Second).UTC().Format(time.RFC3339Nano), "acme2", "rival")
	if err := s.policy.Reload(); err != nil {
		t.Fatal(err)
	}
	w := s.wire("acme")
	half(t, w, 512<<10)
	if said := w.ended(); !strings.Contains(said, "ended") {
		t.Errorf("the caller is told %q", said)
	}
}

// A connection that brings several callers, as a proxy's does, is the one's that came last, and
// stays while one of them is trusted.
func TestConnectionOfSeveralCallers(t *testing.T) {
	t.Parallel()
	s := startTenanted(t, "caller_connections: 1", server.Config{})
	shared := s.wire("acme")
	if err := shared.call(3, serverInfo, map[string]string{"authorization": "Bearer " + tokenOf("rival")}); err != nil {
		t.Fatal(err)
	}
	_ = shared.WriteData(3, true, make([]byte, 5))
	if fields := shared.fields(3); fields["grpc-status"] != "0" {
		t.Fatalf("the second caller gets %v", fields)
	}
	if _, err := s.as("acme"); err != nil {
		t.Errorf("the first caller, who has no other: %v", err)
	}
	s.tokens("acme2", "rival")
	write(t, filepath.Join(s.dir, "policy"), []byte("version: 1\nidentity: {tokens: tokens}\n"+
		"tenants:\n  acme: {members: [{token: acme2, role: owner}]}\n  rival: {members: [{token: rival, role: "+
		"owner}]}\n"))
	if err := s.policy.Reload(); err != nil {
		t.Fatal(err)
	}
	if !shared.answers() {
		t.Error("the connection is closed when the first caller is revoked")
	}
	s.tokens("acme2")
	write(t, filepath.Join(s.dir, "policy"), []byte("version: 1\nidentity: {tokens: tokens}\n"+
		"tenants:\n  acme: {members: [{token: acme2, role: owner}]}\n"))
	if err := s.policy.Reload(); err != nil {
		t.Fatal(err)
	}
	if said := shared.ended(); said == "" {
		t.Error("nobody is told why it ends")
	}
}

// A policy that permits fewer connections closes the surplus.
func TestFewerConnectionsByPolicy(t *testing.T) {
	t.Parallel()
	s := startTenanted(t, "", server.Config{})
	first, second := s.wire("acme"), s.wire("acme")
	write(t, filepath.Join(s.dir, "policy"), []byte("version: 1\nidentity: {tokens: tokens}\n"+
		"tenants:\n  acme: {members: [{token: acme, role: owner}], limits: {caller_connections: 1}}\n"))
	if err := s.policy.Reload(); err != nil {
		t.Fatal(err)
	}
	if said := second.ended(); !strings.Contains(said, "fewer connections") {
		t.Errorf("the newer one is told %q", said)
	}
	if !first.answers() {
		t.Error("the older one is closed too")
	}
}

// At its age a connection takes no more calls, those under way go on until the grace is over,
// and then it is closed.
func TestConnectionAge(t *testing.T) {
	t.Parallel()
	s := startTenanted(t, "requests_per_second: 0",
		server.Config{Connections: server.Connections{MaxAge: 300 * time.Millisecond,
			AgeGrace: 500 * time.Millisecond}})
	w := s.wire("acme")
	if said := w.ended(); !strings.Contains(said, "NO_ERROR") || !strings.Contains(said, "max_connection_age") {
		t.Errorf("the caller is told %q", said)
	}
	conn, err := s.as("acme")
	for end := time.Now().Add(2 * time.Second); err == nil && time.Now().Before(end); {
		err = s.call(conn) // over several ages
	}
	if err != nil {
		t.Errorf("a client that calls on and on: %v", err)
	}
}
