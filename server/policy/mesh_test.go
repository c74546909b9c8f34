package policy

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	_ "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1" // its descriptors
)

// The examples for Istio name the methods by their classes. Istio and Envoy repeat unary methods without side effects
// only.
func TestMeshMethods(t *testing.T) {
	t.Parallel()
	var authorization struct {
		Spec struct {
			Rules []struct {
				To []struct {
					Operation struct {
						Paths []string `yaml:"paths"`
					} `yaml:"operation"`
				} `yaml:"to"`
			} `yaml:"rules"`
		} `yaml:"spec"`
	}
	var service struct {
		Spec struct {
			HTTP []struct {
				Match []struct {
					URI struct {
						Exact string `yaml:"exact"`
					} `yaml:"uri"`
				} `yaml:"match"`
				Retries struct {
					RetryOn string `yaml:"retryOn"`
				} `yaml:"retries"`
			} `yaml:"http"`
		} `yaml:"spec"`
	}
	readExample(t, "mesh/istio/authorizationpolicy.yaml", &authorization)
	readExample(t, "mesh/istio/virtualservice.yaml", &service)
	var refused, owned, repeated []string
	protoregistry.GlobalFiles.RangeFilesByPackage("copilot.bridge.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				path := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
				switch classes[string(m.FullName())].String() {
				case "operate", "host":
					refused = append(refused, path)
				case "own":
					owned = append(owned, path)
				}
				level := m.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel()
				if level == descriptorpb.MethodOptions_NO_SIDE_EFFECTS && !m.IsStreamingClient() && !m.IsStreamingServer() {
					repeated = append(repeated, path)
				}
			}
		}
		return true
	})
	refused = append(refused, "/copilot.cli.v1.*")
	var matches []string
	for _, m := range service.Spec.HTTP[0].Match {
		matches = append(matches, m.URI.Exact)
	}
	rules := authorization.Spec.Rules
	same(t, "refused to everybody", rules[0].To[0].Operation.Paths, refused)
	same(t, "refused to callers without the group", rules[1].To[0].Operation.Paths, owned)
	same(t, "repeated by Istio", matches, repeated)
	same(t, "repeated by Envoy", envoyRepeats(t), repeated)
	if on := service.Spec.HTTP[1].Retries.RetryOn; on != "connect-failure,refused-stream" {
		t.Errorf("other methods are repeated on %q", on)
	}
}

// envoyRepeats returns the paths that Envoy repeats after more than connections that were not made. Each other route of
// its file is for no single method, and repeats only calls that no server has begun.
func envoyRepeats(t *testing.T) (paths []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/envoy/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, routes, _ := strings.Cut(string(text), "              routes:\n")
	routes, _, _ = strings.Cut(routes, "\n  clusters:\n")
	var found []struct {
		Match struct {
			Path string `yaml:"path"`
		} `yaml:"match"`
		Route struct {
			Retry struct {
				On string `yaml:"retry_on"`
			} `yaml:"retry_policy"`
		} `yaml:"route"`
	}
	if err := yaml.Unmarshal([]byte(routes), &found); err != nil {
		t.Fatal(err)
	}
	for _, r := range found {
		if on := r.Route.Retry.On; r.Match.Path != "" {
			paths = append(paths, r.Match.Path)
		} else if on != "connect-failure,refused-stream" {
			t.Errorf("Envoy repeats %+v", r)
		}
	}
	return paths
}

func readExample(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + name)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
