package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/setting"
)

// anyOf ends the name of a family of event types, such as "assistant.*".
const anyOf = ".*"

// eventTypes are the types of events that this program knows, and their families.
var eventTypes = sync.OnceValues(func() (types, families []string) {
	fields := (*cliv1.SessionEvent)(nil).ProtoReflect().Descriptor().Oneofs().ByName("data").Fields()
	for i := range fields.Len() {
		rules, _ := proto.GetExtension(fields.Get(i).Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
		name := rules.GetTag()
		if name == "" { // of an event that is not recognized
			continue
		}
		types = append(types, name)
		for at, c := range name {
			if family := name[:at] + anyOf; c == '.' && !slices.Contains(families, family) {
				families = append(families, family)
			}
		}
	}
	return types, families
})

// checkTypes refuses a type that is misspelt, and warns of others that this program does not know: a newer CLI may have
// them.
func checkTypes(given []string, warnings io.Writer) error {
	types, families := eventTypes()
	for _, name := range given {
		known, what := types, "event type"
		if strings.HasSuffix(name, anyOf) {
			known, what = families, "family of event types"
		}
		if slices.Contains(known, name) {
			continue
		}
		if near := setting.Misspelt(name, known); near != "" {
			return fmt.Errorf("--types: there is no %s %q; did you mean %q?", what, name, near)
		}
		hint := ""
		if near := setting.Nearest(name, known); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		fmt.Fprintf(warnings, "warning: --types: this program knows no %s %q%s\n", what, name, hint)
	}
	return nil
}
