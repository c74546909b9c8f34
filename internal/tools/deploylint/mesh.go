package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1"
	security "istio.io/api/security/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

// object is a resource of a mesh: Istio's specs are protobuf messages.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
}

// The specs of Linkerd, whose module requires more than its types. The fields are those of its custom resource definitions
// (charts/linkerd-crds/templates/policy in linkerd/linkerd2).
type (
	linkerdServer struct {
		PodSelector      metav1.LabelSelector `json:"podSelector"`
		Port             string               `json:"port"`
		ProxyProtocol    string               `json:"proxyProtocol"`
		AccessPolicy     string               `json:"accessPolicy"`
		ExternalWorkload metav1.LabelSelector `json:"externalWorkloadSelector"`
	}
	linkerdRef struct {
		Group     string `json:"group"`
		Kind      string `json:"kind"`
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	}
	linkerdAuthorization struct {
		TargetRef                  linkerdRef   `json:"targetRef"`
		RequiredAuthenticationRefs []linkerdRef `json:"requiredAuthenticationRefs"`
	}
	linkerdTLS struct {
		Identities   []string     `json:"identities"`
		IdentityRefs []linkerdRef `json:"identityRefs"`
	}
)

// meshSpecs are the types of the specs, by version and kind.
var meshSpecs = map[string]func() any{
	"gateway.networking.k8s.io/v1 Gateway":             func() any { return &gateway.GatewaySpec{} },
	"gateway.networking.k8s.io/v1 GRPCRoute":           func() any { return &gateway.GRPCRouteSpec{} },
	"gateway.networking.k8s.io/v1 BackendTLSPolicy":    func() any { return &gateway.BackendTLSPolicySpec{} },
	"networking.istio.io/v1 Gateway":                   func() any { return &networking.Gateway{} },
	"networking.istio.io/v1 VirtualService":            func() any { return &networking.VirtualService{} },
	"networking.istio.io/v1 DestinationRule":           func() any { return &networking.DestinationRule{} },
	"security.istio.io/v1 PeerAuthentication":          func() any { return &security.PeerAuthentication{} },
	"security.istio.io/v1 RequestAuthentication":       func() any { return &security.RequestAuthentication{} },
	"security.istio.io/v1 AuthorizationPolicy":         func() any { return &security.AuthorizationPolicy{} },
	"policy.linkerd.io/v1beta3 Server":                 func() any { return &linkerdServer{} },
	"policy.linkerd.io/v1alpha1 AuthorizationPolicy":   func() any { return &linkerdAuthorization{} },
	"policy.linkerd.io/v1alpha1 MeshTLSAuthentication": func() any { return &linkerdTLS{} },
}

// mesh returns what is wrong with the examples for meshes in a folder.
func mesh(dir string) (problems []string) {
	paths, err := filepath.Glob(filepath.Join(dir, "*/*.yaml"))
	if err != nil || len(paths) == 0 {
		return []string{fmt.Sprintf("%s: no example (%v)", dir, err)}
	}
	for _, path := range paths {
		if err := meshObject(path); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", path, err))
		}
	}
	return problems
}

// meshObject decodes a file. An unknown field is an error.
func meshObject(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var o object
	if err := yaml.UnmarshalStrict(text, &o); err != nil {
		return err
	}
	spec, ok := meshSpecs[o.APIVersion+" "+o.Kind]
	if !ok {
		return fmt.Errorf("%s %s is not expected here", o.APIVersion, o.Kind)
	}
	into := spec()
	if message, ok := into.(proto.Message); ok {
		return protojson.Unmarshal(o.Spec, message)
	}
	return yaml.UnmarshalStrict(o.Spec, into)
}
