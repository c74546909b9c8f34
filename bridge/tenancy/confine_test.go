package tenancy_test

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// Members of a session's profile that a caller set remain as long as callers may set them.
func TestCallersPartOfTheConfinement(t *testing.T) {
	t.Parallel()
	base := tenancy.Tenant{
		Confined: true,
		Profile: runtime.Profile{
			Tenant: "acme", Home: "/acme/copilot", UserHome: "/acme/home", Dir: "/acme/work", Env: map[string]string{"A": "1"},
		},
	}
	base.ProfileFields = []string{"env", "working_directory", "session_fs"}
	own := base.Profile
	own.Env = map[string]string{"A": "1", "MINE": "x"}
	own.Dir = "/mine"
	next := base
	next.Profile.Env = map[string]string{"A": "2"}
	next.Profile.Dir, next.Profile.Home = "/theirs", "/moved"
	got, err := next.Confine(own, base.Profile)
	if err != nil || got.Env["A"] != "2" || got.Env["MINE"] != "x" || got.Dir != "/mine" || got.Home != "/moved" {
		t.Errorf("it is %+v, %v", got, err)
	}
	next.ProfileFields = []string{}
	got, err = next.Confine(own, base.Profile)
	if err != nil || len(got.Env) != 1 || got.Dir != "/theirs" {
		t.Errorf("when callers may say nothing it is %+v, %v", got, err)
	}
	own.SessionFS = &runtime.SessionFS{}
	_, err = next.Confine(own, base.Profile)
	if f, ok := fields.AsFault(err); !ok || f.Reason != fault.Forbidden || f.Field != "runtime_profile.session_fs" {
		t.Errorf("files of its own: %v", err)
	}
}
