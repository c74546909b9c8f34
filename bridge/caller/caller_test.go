package caller

import (
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Each role may make the calls of its classes and no others. Calls that affect the host require the host's own
// tenant or a sandbox. Methods without a class are denied to all callers.
func TestMay(t *testing.T) {
	t.Parallel()
	may := map[Role]string{
		Nobody:      "",
		Observer:    "read",
		Participant: "read drive",
		Owner:       "read drive own host",
		Admin:       "read drive own host operate",
	}
	for role, want := range may {
		for _, c := range []Caller{
			{Tenant: HostTenant, Role: role}, {Tenant: "acme", Role: role, Confined: true}, {Tenant: "acme", Role: role},
		} {
			for class := Unclassed; class <= Operate; class++ {
				ok := strings.Contains(want, class.String())
				if class == Host && c.Tenant != HostTenant && !c.Confined {
					ok = false
				}
				err := c.Require(class, "the call")
				if c.May(class) != ok || (err == nil) != ok || err != nil && fault.ReasonOf(err) != fault.Forbidden {
					t.Errorf("%+v, class %s: allowed %v, %v, want %v", c, class, c.May(class), err, ok)
				}
			}
		}
	}
}
