package copilot_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestTokenFromFileIsReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	source := copilot.TokenFromFile(file)
	if _, err := source(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v", err)
	}
	for _, want := range []string{"one", "the second"} {
		if err := os.WriteFile(file, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := source(t.Context()); got != want || err != nil {
			t.Errorf("token = %q, %v", got, err)
		}
	}
}

func TestReplacedTokenContinuesStreams(t *testing.T) {
	t.Parallel()
	var token atomic.Value
	token.Store("old")
	source := func(context.Context) (string, error) { return token.Load().(string), nil }
	f, c := newFake(t, copilot.WithTokenSource(source))
	sent := func(a *attach) string {
		md, _ := metadata.FromIncomingContext(a.out.Context())
		return strings.Join(md.Get("authorization"), ",")
	}
	s, a := session(t, f, c, copilot.SessionOptions{})
	if got := sent(a); got != "Bearer old" {
		t.Errorf("authorization = %q", got)
	}
	token.Store("new")
	a.end <- failure(codes.Unauthenticated, "UNAUTHENTICATED", "the token has expired")
	a = f.attached(t)
	if got := sent(a); got != "Bearer new" || a.start.GetParticipantToken() != "secret" {
		t.Errorf("authorization = %q, start = %v", got, a.start)
	}
	// The same token again is a refusal, and final.
	a.end <- failure(codes.Unauthenticated, "UNAUTHENTICATED", "unknown token")
	select {
	case <-s.Done():
	case <-testContext(t).Done():
		t.Error("the participation goes on")
	}
}

func TestChangingTokenIsAReasonForOneAttempt(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	source := func(context.Context) (string, error) { return strconv.FormatInt(calls.Add(1), 10), nil }
	f, c := newFake(t, copilot.WithTokenSource(source))
	s, a := session(t, f, c, copilot.SessionOptions{})
	expired := failure(codes.Unauthenticated, "UNAUTHENTICATED", "the token has expired")
	a.end <- expired
	again := receive(t, f.attaches, "attach stream")
	again.end <- expired
	select {
	case <-s.Done():
	case <-testContext(t).Done():
		t.Fatal("the participation goes on")
	}
	if err := s.Err(); !copilot.IsReason(err, bridgev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED) {
		t.Errorf("err = %v", err)
	}
}
