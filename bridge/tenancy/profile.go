package tenancy

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// DefaultProfileFields are the members of RuntimeProfile that all callers may set. They give no more rights
// than a session has.
var DefaultProfileFields = []string{"log_level", "model_inference", "multi_connection", "session_fs", "telemetry"}

// ProfileFields are all members of RuntimeProfile that a policy can name.
func ProfileFields() []string {
	fields := (*bridgev1.RuntimeProfile)(nil).ProtoReflect().Descriptor().Fields()
	var names []string
	for i := range fields.Len() {
		if name := string(fields.Get(i).Name()); name != homeName {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// homeName may be set where there are names.
const homeName = "home_name"

const maxProviderKey = 128

// Fields returns the members of RuntimeProfile that the tenant's callers may set.
func (t Tenant) Fields() []string {
	if t.ProfileFields == nil {
		return DefaultProfileFields
	}
	return t.ProfileFields
}

// checkFields refuses members that the tenant's callers may not set.
func (t Tenant) checkFields(m *bridgev1.RuntimeProfile, at string) (err error) {
	m.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		name := string(fd.Name())
		if name != homeName && !slices.Contains(t.Fields(), name) {
			err = fault.New(fault.Forbidden, "callers may not set %s here; the server's operator can allow it", name).
				WithField(at + "." + name)
		}
		return err == nil
	})
	return err
}

// ReadProfile returns the profile of the caller's tenant with what the caller says in m, which is nil or at the
// path at of the request. own is the key of providers that are for one session alone; it is empty where there
// is no session.
func (t *Tenants) ReadProfile(
	ctx context.Context, m *bridgev1.RuntimeProfile, at, own string,
) (runtime.Profile, error) {
	tenant, ok := t.Get(caller.From(ctx).Tenant)
	if !ok {
		return runtime.Profile{}, fault.New(fault.Forbidden, "there is no tenant %q", caller.From(ctx).Tenant)
	}
	p := tenant.Profile
	if m == nil {
		return p, nil
	}
	if t.Dialed {
		return p, fault.New(fault.FeatureDisabled,
			"the server uses a running CLI server (dial), whose profile cannot be selected").WithField(at)
	}
	if err := tenant.checkFields(m, at); err != nil {
		return p, err
	}
	if name := m.GetHomeName(); name != "" {
		dir, ok := tenant.Homes[name]
		if !ok {
			return p, fault.New(fault.InvalidField, "there is no home %q", name).WithField(at + "." + homeName)
		}
		p.Home = dir
	}
	p.Home, p.UserHome = cmp.Or(m.GetHome(), p.Home), cmp.Or(m.GetUserHome(), p.UserHome)
	p.Dir, p.Token = cmp.Or(m.GetWorkingDirectory(), p.Dir), cmp.Or(m.GetGithubToken(), p.Token)
	p.LogLevel = cmp.Or(m.GetLogLevel(), p.LogLevel)
	if m.UseLogin != nil {
		p.UseLogin = m.GetUseLogin()
	}
	p.Telemetry = p.Telemetry || m.GetTelemetry()
	p.Multi = p.Multi || m.GetMultiConnection()
	p.ExtensionLaunch = p.ExtensionLaunch || m.GetExtensionLaunch()
	if len(m.GetEnv()) > 0 {
		p.Env = maps.Clone(p.Env)
		if p.Env == nil {
			p.Env = map[string]string{}
		}
		maps.Copy(p.Env, m.GetEnv())
	}
	if err := readProviders(&p, m, at, own); err != nil {
		return p, err
	}
	if f, bad := fields.AsFault(p.Validate()); bad {
		field := f.Field
		if field == "dir" {
			field = "working_directory"
		}
		return p, fault.New(fault.InvalidField, "%s", f.Message).WithField(at + "." + field)
	}
	return p, nil
}

// readProviders reads which parts of the runtime the callers provide themselves.
func readProviders(p *runtime.Profile, m *bridgev1.RuntimeProfile, at, own string) error {
	key := func(given, field string) (string, error) {
		switch {
		case len(given) > maxProviderKey:
			return "", fault.New(fault.InvalidField, "a key has at most %d characters", maxProviderKey).
				WithField(at + "." + field + ".key")
		case given == "" && own == "":
			return "", fault.New(fault.InvalidField, "the key is required: it selects the CLI process").WithField(at + "." + field + ".key")
		case given == "":
			return "session " + own, nil
		}
		return "key " + given, nil
	}
	if fs := m.GetSessionFs(); fs != nil {
		field := at + ".session_fs."
		if err := fields.Known(fs.GetConventions(), field+"conventions"); err != nil {
			return err
		}
		windows := fs.GetConventions() == bridgev1.PathConventions_PATH_CONVENTIONS_WINDOWS
		if !absolute(fs.GetInitialDirectory(), windows) {
			return fault.New(fault.InvalidField, "%q is not an absolute path", fs.GetInitialDirectory()).
				WithField(field + "initial_directory")
		}
		if fs.GetStatePath() == "" {
			return fault.New(fault.InvalidField, "state_path is required").WithField(field + "state_path")
		}
		k, err := key(fs.GetKey(), "session_fs")
		if err != nil {
			return err
		}
		p.SessionFS = &runtime.SessionFS{
			Key: k, InitialDir: fs.GetInitialDirectory(), StatePath: fs.GetStatePath(), Windows: windows,
			SQLite: fs.GetSqlite(), Binary: fs.GetBinary(),
		}
	}
	if mi := m.GetModelInference(); mi != nil {
		k, err := key(mi.GetKey(), "model_inference")
		if err != nil {
			return err
		}
		p.ModelInference = &runtime.ModelInference{Key: k}
	}
	return nil
}

// absolute reports whether a path of a file system elsewhere is absolute.
func absolute(path string, windows bool) bool {
	if windows {
		return len(path) >= 3 && path[1] == ':' && (path[2] == '\\' || path[2] == '/') || strings.HasPrefix(path, `\\`)
	}
	return strings.HasPrefix(path, "/")
}

// RequiredCallbacks returns the callbacks that a session of the profile must have a handler for.
func RequiredCallbacks(p runtime.Profile) (methods []string) {
	if p.SessionFS != nil {
		methods = append(methods, callback.FSReadFile, callback.FSWriteFile)
	}
	if p.ModelInference != nil {
		methods = append(methods, callback.ModelRequestStart, callback.ModelRequestChunk)
	}
	return methods
}
