package store_test

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend/backendtest"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
)

func openTB(t testing.TB, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(store.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestRequestsConform(t *testing.T) {
	t.Parallel()
	backendtest.Requests(t, func(t testing.TB) backendtest.OpenRequests {
		return openTB(t, t.TempDir()).Requests
	})
}
