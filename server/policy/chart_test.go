package policy

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
)

// schema is the part of a JSON schema that this test reads.
type schema struct {
	Properties           map[string]*schema `json:"properties"`
	Items                *schema            `json:"items"`
	AdditionalProperties any                `json:"additionalProperties"`
	Defs                 map[string]*schema `json:"$defs"`
}

// The schema of the Helm chart's values knows the keys of the policy file, and no others.
func TestChartPolicy(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/helm/copilot-grpc/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var values schema
	if err := json.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	policy := values.Defs["policy"]
	issuers := policy.Properties["identity"].Properties["oidc"].Items
	for _, tc := range []struct {
		is   *schema
		want any
	}{
		{policy, file{}},
		{policy.Properties["identity"], identitySection{}},
		{policy.Properties["identity"].Properties["proxies"].Items, proxy{}},
		{issuers, issuer{}},
		{issuers.Properties["login"], client{}},
		{values.Defs["tenant"], Tenant{}},
		{values.Defs["tenant"].Properties["user"], User{}},
		{values.Defs["member"], Member{}},
		{values.Defs["limits"], quota.Limits{}},
	} {
		want := keys(reflect.TypeOf(tc.want))
		if got := slices.Sorted(maps.Keys(tc.is.Properties)); !slices.Equal(got, want) {
			t.Errorf("%T: the schema has %v, the server %v", tc.want, got, want)
		}
		if tc.is.AdditionalProperties != false {
			t.Errorf("%T: the schema admits other keys", tc.want)
		}
	}
}

// keys returns the keys of a struct in the policy file, in order.
func keys(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
