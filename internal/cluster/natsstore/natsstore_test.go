package natsstore_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natsstore"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/freeport"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// open opens the store of a cluster on a server of this process.
func open(t testing.TB, provider nats.InProcessConnProvider, cluster string) *natsstore.Store {
	t.Helper()
	s, err := natsstore.Open(t.Context(), natsstore.Config{InProcess: provider, Cluster: cluster, Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func session(t testing.TB, s *natsstore.Store, key string, term uint64) *natsstore.Session {
	t.Helper()
	o, err := s.OpenSession(t.Context(), key, term, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// must fails the test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mustBeStale fails the test unless err is backend.ErrStale.
func mustBeStale(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, backend.ErrStale) {
		t.Errorf("%s by an earlier owner: %v, want %v", what, err, backend.ErrStale)
	}
}

// savedState returns what is saved of a session, as "TERM DATA"; empty if nothing is.
func savedState(t testing.TB, s *natsstore.Store, key string) string {
	t.Helper()
	state, ok, err := s.State(t.Context(), key)
	must(t, err)
	if !ok {
		return ""
	}
	stream, err := s.JetStream().Stream(t.Context(), s.Cluster()+"_session")
	must(t, err)
	m, err := stream.GetLastMsgForSubject(t.Context(), s.Cluster()+".session."+key+".state")
	must(t, err)
	return fmt.Sprintf("%s %s", m.Header.Get("Copilot-Term"), state)
}

// eachKind runs a test on a single server and on a cluster of three.
func eachKind(t *testing.T, f func(t *testing.T, open func(cluster string) *natsstore.Store)) {
	t.Helper()
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		n := natstest.Start(t)
		f(t, func(cluster string) *natsstore.Store { return open(t, n, cluster) })
	})
	t.Run("three servers", func(t *testing.T) {
		t.Parallel()
		nodes := natstest.Cluster(t, 3)
		opened := 0
		f(t, func(cluster string) *natsstore.Store {
			opened++
			s := open(t, nodes[opened%3], cluster)
			if r := s.Recipe(); !r.Clustered || r.Replicas != 3 || len(r.Risks) > 0 {
				t.Errorf("the cluster is seen as %+v", r)
			}
			return s
		})
	})
}

func TestEarlierOwnerIsRefused(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, open func(string) *natsstore.Store) {
		a, b := open("c"), open("c")
		first := session(t, a, "s", 4)
		must(t, first.Save(t.Context(), []byte(`"first"`)))
		must(t, first.Outbox().Write("f", []byte("first")))

		second := session(t, b, "s", 5)
		if got := savedState(t, b, "s"); got != `4 "first"` {
			t.Errorf("the next owner finds %s", got)
		}
		mustBeStale(t, "a save", first.Save(t.Context(), []byte(`"late"`)))
		mustBeStale(t, "a write", first.Outbox().Write("f", []byte("late")))
		mustBeStale(t, "a large write", first.Outbox().Write("f", make([]byte, 3<<20)))
		mustBeStale(t, "a save of the outbox", first.Outbox().Save([]byte("late")))
		mustBeStale(t, "a removal of a file", first.Outbox().Remove("f"))
		mustBeStale(t, "a removal", first.Remove(t.Context()))
		_, err := a.OpenSession(t.Context(), "s", 4, nil)
		mustBeStale(t, "an open", err)

		must(t, second.Save(t.Context(), []byte(`"second"`)))
		if got := savedState(t, a, "s"); got != `5 "second"` {
			t.Errorf("after the refusals the state is %s", got)
		}
		if got, err := second.Outbox().Read("f"); err != nil || string(got) != "first" {
			t.Errorf("after the refusals the file is %q, %v", got, err)
		}
		again := session(t, b, "s", 5) // an owner may open its session again
		must(t, again.Save(t.Context(), []byte(`"again"`)))
	})
}

func TestRemovedSessionIsGone(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, open func(string) *natsstore.Store) {
		s := open("c")
		old := session(t, s, "s", 1)
		must(t, old.Save(t.Context(), []byte(`1`)))
		kept := session(t, s, "s2", 1)
		must(t, kept.Save(t.Context(), []byte(`1`)))
		o := session(t, s, "s", 2)
		must(t, o.Save(t.Context(), make([]byte, 2<<20)))
		must(t, o.Outbox().Write("f", []byte("x")))
		must(t, o.Remove(t.Context()))
		must(t, o.Remove(t.Context()))
		mustBeStale(t, "a save after the removal", o.Save(t.Context(), []byte(`2`)))
		mustBeStale(t, "a save", old.Save(t.Context(), []byte(`2`)))
		_, err := s.OpenSession(t.Context(), "s", 1, nil)
		mustBeStale(t, "an open", err)
		if got := savedState(t, s, "s"); got != "" {
			t.Errorf("a removed session has the state %s", got)
		}
		// The term of each session is left, and the state of the other session.
		stream, err := s.JetStream().Stream(t.Context(), "c_session")
		must(t, err)
		if n := stream.CachedInfo().State.Msgs; n != 3 {
			t.Errorf("%d messages are left, want 3", n)
		}
		next := session(t, s, "s", 3)
		if names, err := next.Outbox().List(); err != nil || len(names) > 0 {
			t.Errorf("a new session has the files %q, %v", names, err)
		}
		must(t, next.Save(t.Context(), []byte(`3`)))
		mustBeStale(t, "a removal", o.Remove(t.Context()))
		if got := savedState(t, s, "s"); got != "3 3" {
			t.Errorf("the new session has the state %s", got)
		}
	})
}

// Names that need encoding, and two clusters on one account, do not meet.
func TestNamesDoNotMeet(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
	keys := []string{
		"s", "S", "t.s", "t=2es", "t..s", "t.s.", "*", ">", "t.>", "a b", "ü", "x\x00y", "/", "\r\n",
		strings.Repeat("x", 1000), strings.Repeat("x", 999) + "y", "==", "term", "$JS",
	}
	for _, cluster := range []string{"a", "a-b"} {
		s := open(t, n, cluster)
		for _, key := range keys {
			o := session(t, s, key, 1)
			must(t, o.Save(t.Context(), []byte(fmt.Sprintf("%q", cluster+key))))
			for _, name := range keys {
				must(t, o.Outbox().Write(name, []byte(cluster+key+name)))
			}
		}
	}
	for _, cluster := range []string{"a", "a-b"} {
		s := open(t, n, cluster)
		for _, key := range keys {
			state, found, err := s.State(t.Context(), key)
			if err != nil || !found || string(state) != fmt.Sprintf("%q", cluster+key) {
				t.Errorf("the state of %q is %s, %v", key, state, err)
			}
			box := session(t, s, key, 2).Outbox()
			names, err := box.List()
			must(t, err)
			if !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(keys))) {
				t.Errorf("the files of %q are %q", key, names)
			}
			for _, name := range keys {
				if got, err := box.Read(name); err != nil || string(got) != cluster+key+name {
					t.Errorf("the file %q of %q is %q, %v", name, key, got, err)
				}
			}
		}
	}
}

// The outbox has the files that the data directory has after the same calls.
func TestOutboxIsLikeAFolder(t *testing.T) {
	t.Parallel()
	disk, err := store.Open(store.Config{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { _ = disk.Close() })
	local := disk.Outbox("s")
	s := open(t, natstest.Start(t), "c")
	term := uint64(1)
	o := session(t, s, "s", term)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	names := []string{"1", "p.2", "x y"}
	must(t, local.Write("1", nil)) // the folder exists
	must(t, o.Outbox().Write("1", nil))
	for i := range 300 {
		name := names[random.IntN(len(names))]
		data := []byte(strings.Repeat(fmt.Sprint(i), random.IntN(20)))
		if random.IntN(20) == 0 {
			data = []byte(strings.Repeat(fmt.Sprint(i), 300<<10))
		}
		box := o.Outbox()
		switch random.IntN(4) {
		case 0:
			must(t, errors.Join(local.Save(data), box.Save(data)))
		case 1, 2:
			must(t, errors.Join(local.Write(name, data), box.Write(name, data)))
		case 3:
			must(t, errors.Join(local.Remove(name), box.Remove(name)))
		}
		want, wantErr := local.Read(name)
		got, err := box.Read(name)
		if string(got) != string(want) || errors.Is(err, fs.ErrNotExist) != errors.Is(wantErr, fs.ErrNotExist) {
			t.Fatalf("step %d: the file %q has %d bytes, %v, want %d, %v", i, name, len(got), err, len(want), wantErr)
		}
		want, wantErr = local.Load()
		if got, err := box.Load(); string(got) != string(want) || errors.Is(err, fs.ErrNotExist) != errors.Is(wantErr, fs.ErrNotExist) {
			t.Fatalf("step %d: the state has %d bytes, %v, want %d, %v", i, len(got), err, len(want), wantErr)
		}
		wantNames, _ := local.List()
		gotNames, err := box.List()
		must(t, err)
		slices.Sort(gotNames)
		slices.Sort(wantNames)
		if !slices.Equal(gotNames, wantNames) {
			t.Fatalf("step %d: the files are %q, want %q", i, gotNames, wantNames)
		}
		if random.IntN(30) == 0 {
			term++
			o = session(t, s, "s", term)
		}
	}
}

// Writers of one cluster get different epochs, each later than all earlier ones.
func TestEpochsGrow(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, open func(string) *natsstore.Store) {
		stores := []*natsstore.Store{open("c"), open("c"), open("d")}
		last := map[string]uint64{}
		for range 20 {
			for _, s := range stores {
				epoch, err := s.NextEpoch(t.Context())
				must(t, err)
				if epoch <= last[s.Cluster()] {
					t.Fatalf("epoch %d follows %d", epoch, last[s.Cluster()])
				}
				last[s.Cluster()] = epoch
			}
		}
	})
}

// While the server is away calls fail, and nothing of them arrives later; after that everything works.
func TestServerAwayAndBack(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
	s := open(t, n, "c")
	o := session(t, s, "s", 1)
	must(t, o.Save(t.Context(), []byte(`"before"`)))
	n.Stop()
	if err := o.Save(t.Context(), []byte(`"meanwhile"`)); err == nil || errors.Is(err, backend.ErrStale) {
		t.Fatalf("a save without a server: %v", err)
	}
	n.Start()
	for err := error(nats.ErrReconnectBufExceeded); err != nil; {
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
		if _, _, err = s.State(t.Context(), "s"); err != nil && !s.JetStream().Conn().IsConnected() {
			continue
		}
	}
	if got := savedState(t, s, "s"); got != `1 "before"` {
		t.Errorf("the server has the state %s", got)
	}
	must(t, o.Save(t.Context(), []byte(`"after"`)))
	if got := savedState(t, s, "s"); got != `1 "after"` {
		t.Errorf("the server has the state %s", got)
	}
}

func TestOpenExplains(t *testing.T) {
	t.Parallel()
	users := func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "all", Password: "secretpw"},
			{Username: "little", Password: "secretpw", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{"$JS.API.INFO"}},
			}},
			{Username: "nothing", Password: "secretpw", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{"x"}},
			}},
		}
	}
	n := natstest.Start(t, natstest.Listen, users)
	bare := natstest.Start(t, natstest.Listen, func(o *server.Options) { o.JetStream = false })
	as := func(user string) string { return strings.Replace(n.URL(), "://", "://"+user+"@", 1) }
	nowhere, err := freeport.Address()
	must(t, err)
	safe := natstest.Start(t)
	js, err := jetstream.New(open(t, safe, "mine").JetStream().Conn())
	must(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "theirs_session", Subjects: []string{"theirs.session.>"}, Storage: jetstream.FileStorage, MaxAge: 3600e9,
	})
	must(t, err)
	badCreds := filepath.Join(t.TempDir(), "creds")
	must(t, os.WriteFile(badCreds, []byte("secretpw"), 0o600))
	for name, c := range map[string]struct {
		config natsstore.Config
		says   string
	}{
		"no URL":           {natsstore.Config{}, "missing"},
		"a bad URL":        {natsstore.Config{URL: "nats://u:secretpw@%zz"}, "parsed"},
		"another scheme":   {natsstore.Config{URL: "http://u:secretpw@h"}, `"http"`},
		"a cluster's name": {natsstore.Config{URL: n.URL(), Cluster: "a.b"}, `"a.b"`},
		"even replicas":    {natsstore.Config{URL: n.URL(), Replicas: 2}, "2 replicas"},
		"nobody there":     {natsstore.Config{URL: "nats://u:secretpw@" + nowhere}, "no connection to " + nowhere},
		"no credentials":   {natsstore.Config{URL: n.URL()}, "refused"},
		"wrong password":   {natsstore.Config{URL: as("all:secretpwX")}, "refused"},
		"no credentials file": {
			natsstore.Config{URL: n.URL(), Credentials: badCreds + "x"}, "no such file",
		},
		"bad credentials file": {
			natsstore.Config{URL: n.URL(), Credentials: badCreds}, "no credentials",
		},
		"no permission": {
			natsstore.Config{URL: as("nothing:secretpw"), Unsafe: true}, "$JS.API.INFO",
		},
		"few permissions": {
			natsstore.Config{URL: as("little:secretpw"), Unsafe: true}, "STREAM.INFO",
		},
		"no JetStream": {natsstore.Config{URL: bare.URL()}, "JetStream"},
		"one replica":  {natsstore.Config{InProcess: safe}, "1 replica"},
		"other settings": {
			natsstore.Config{InProcess: safe, Cluster: "theirs", Unsafe: true},
			"max_age is 1h0m0s, not 0s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := natsstore.Open(t.Context(), c.config)
			if err == nil {
				s.Close()
			}
			var open *natsstore.OpenError
			if !errors.As(err, &open) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error is %v, want one with %q", err, c.says)
			}
			if err != nil && strings.Contains(err.Error(), "secretpw") {
				t.Errorf("the error has a secret: %v", err)
			}
		})
	}
}
