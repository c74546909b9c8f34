package tenancy

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestProfileIsPutOverTheServersOwn(t *testing.T) {
	t.Parallel()
	own := runtime.Profile{Home: "/own", Env: map[string]string{"A": "1", "B": "2"}, UseLogin: true}
	tenants := &Tenants{Host: Tenant{Profile: own, ProfileFields: ProfileFields(), Homes: map[string]string{"team": "/team"}}}
	got, err := tenants.ReadProfile(t.Context(), &bridgev1.RuntimeProfile{
		HomeName: "team", Env: map[string]string{"B": "3"}, UseLogin: proto.Bool(false), LogLevel: "debug", Telemetry: true,
		WorkingDirectory: "/work", GithubToken: "t", UserHome: "/user",
		ModelInference: &bridgev1.ModelInference{}, SessionFs: &bridgev1.SessionFileSystem{
			Key: "k", InitialDirectory: `C:\`, StatePath: `C:\state`, Conventions: bridgev1.PathConventions_PATH_CONVENTIONS_WINDOWS, Binary: true,
		},
	}, "p", "s1")
	if err != nil {
		t.Fatal(err)
	}
	want := runtime.Profile{
		Home: "/team", UserHome: "/user", Dir: "/work", Token: "t", LogLevel: "debug", Telemetry: true,
		Env:            map[string]string{"A": "1", "B": "3"},
		ModelInference: &runtime.ModelInference{Key: "session s1"},
		SessionFS:      &runtime.SessionFS{Key: "key k", InitialDir: `C:\`, StatePath: `C:\state`, Windows: true, Binary: true},
	}
	if got.Hash() != want.Hash() {
		t.Errorf("the profile is %+v, want %+v", got, want)
	}
	if own.Env["B"] != "2" {
		t.Error("the server's own profile has changed")
	}
	if none, err := tenants.ReadProfile(t.Context(), nil, "p", ""); err != nil || placement.Key(none) != placement.Key(own) {
		t.Errorf("without one it is %+v, %v", none, err)
	}
}

// A session's own key is never what another caller can name.
func TestProviderKeysAreApart(t *testing.T) {
	t.Parallel()
	tenants := &Tenants{}
	keyed := func(key, session string) string {
		p, err := tenants.ReadProfile(t.Context(), &bridgev1.RuntimeProfile{ModelInference: &bridgev1.ModelInference{Key: key}}, "p", session)
		if err != nil {
			t.Fatal(err)
		}
		return p.Hash()
	}
	if keyed("", "s1") == keyed("", "s2") || keyed("s1", "x") == keyed("", "s1") || keyed("session s1", "x") == keyed("", "s1") {
		t.Error("keys meet")
	}
	if keyed("k", "s1") != keyed("k", "s2") {
		t.Error("the same key is not the same")
	}
}

func TestProfileOfADialledServer(t *testing.T) {
	t.Parallel()
	tenants := &Tenants{Dialed: true}
	_, err := tenants.ReadProfile(t.Context(), &bridgev1.RuntimeProfile{}, "create.runtime_profile", "s1")
	if f, ok := fields.AsFault(err); !ok || f.Reason != fault.FeatureDisabled || f.Field != "create.runtime_profile" {
		t.Errorf("any profile: %v", err)
	}
	if _, err := tenants.ReadProfile(t.Context(), nil, "", "s1"); err != nil {
		t.Errorf("without one: %v", err)
	}
}
