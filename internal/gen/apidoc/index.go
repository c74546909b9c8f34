package apidoc

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// group is a part of the index.
type group struct {
	title, about string
	has          func(*protogen.Service) bool
}

var groups = []group{
	{"The bridge", "Sessions, events, callbacks and runtimes.", func(s *protogen.Service) bool {
		return !strings.HasPrefix(string(s.Desc.FullName()), "copilot.cli.")
	}},
	{"The CLI: its server", "Generated from the CLI's schemas: methods outside sessions.",
		func(s *protogen.Service) bool {
			return !internal(s) && !callback(s) && !ofSession(s)
		}},
	{"The CLI: a session", "Generated from the CLI's schemas: methods of a session.", func(s *protogen.Service) bool {
		return !internal(s) && !callback(s) && ofSession(s)
	}},
	{"The CLI: internal", "Methods that the CLI marks as internal. They may change without notice.", internal},
	{"The CLI: callbacks", "Messages of the CLI's requests and notifications to its client. These services cannot be " +
		"called.", func(s *protogen.Service) bool {
		return !internal(s) && callback(s)
	}},
}

func internal(s *protogen.Service) bool { return rules(s).GetInternal() }
func callback(s *protogen.Service) bool { return rules(s).GetCallback() }
func ofSession(s *protogen.Service) bool {
	return strings.HasPrefix(rules(s).GetMethod(), "session.")
}

// rules returns the rules of a service's first method; the other methods are of the same kind.
func rules(s *protogen.Service) *jsonv1.MethodRules {
	if len(s.Methods) == 0 {
		return nil
	}
	return rulesOf(s.Methods[0])
}

// index lists the services, and the pages without one.
func (r *reference) index() string {
	w := &writer{r: r, page: "README.md"}
	w.line("# Reference\n")
	if pkg := r.options.Package; pkg != "" {
		w.line("Every service, message and enum of `%s`. `make generate` builds the reference of all packages in "+
			"`bin/reference`.\n", pkg)
	} else {
		w.line("Every service, message and enum of the API. [methods.md](methods.md) lists the CLI's JSON-RPC " +
			"methods and their rpcs.\n")
	}
	rest := r.services()
	for _, g := range groups {
		if !slices.ContainsFunc(rest, g.has) {
			continue
		}
		w.line("## %s\n\n%s\n", g.title, g.about)
		w.line("| Service | Methods | |\n|---|--:|---|")
		rest = slices.DeleteFunc(rest, func(s *protogen.Service) bool {
			if !g.has(s) {
				return false
			}
			page := pageOf(r.fileOf(s))
			w.line("| [%s](%s#%s) | %d | %s |", s.Desc.Name(), page, anchor(string(s.Desc.Name())), len(s.Methods),
				firstSentence(s.Comments.Leading))
			return true
		})
		w.line("")
	}
	w.line("## Files without a service\n")
	for _, f := range r.files {
		if len(f.Services) == 0 {
			w.line("- [%s](%s)", f.Desc.Path(), pageOf(f))
		}
	}
	return w.String()
}

func (r *reference) services() []*protogen.Service {
	var out []*protogen.Service
	for _, f := range r.files {
		out = append(out, f.Services...)
	}
	return out
}

func (r *reference) fileOf(s *protogen.Service) *protogen.File {
	i := slices.IndexFunc(r.files, func(f *protogen.File) bool { return f.Desc.Path() == s.Desc.ParentFile().Path() })
	return r.files[i]
}

// methods is the table of the CLI's methods.
func (r *reference) methods() string {
	var all []*protogen.Method
	for _, s := range r.services() {
		for _, m := range s.Methods {
			if rulesOf(m) != nil {
				all = append(all, m)
			}
		}
	}
	slices.SortFunc(all, func(a, b *protogen.Method) int {
		return strings.Compare(rulesOf(a).GetMethod(), rulesOf(b).GetMethod())
	})
	w := &writer{r: r, page: "methods.md"}
	w.line("# The CLI's methods\n")
	w.line("The %d JSON-RPC methods of the supported CLI versions, and their rpcs. \"Since\" and \"until\" are empty "+
		"for methods of every supported version.\n", len(all))
	w.line("`docs/methods.md` lists the methods that the server implements itself or refuses.\n")
	w.line("| JSON-RPC method | rpc | Since | Until | |\n|---|---|---|---|---|")
	for _, m := range all {
		rules := rulesOf(m)
		w.line("| `%s` | [%s](%s#%s) | %s | %s | %s |", rules.GetMethod(), rpcHeading(m),
			pageOf(r.fileOf(m.Parent)), anchor(rpcHeading(m)), rules.GetSince(), rules.GetLast(), kindOf(rules))
	}
	return w.String()
}

func kindOf(rules *jsonv1.MethodRules) string {
	var words []string
	for _, word := range []struct {
		on   bool
		text string
	}{
		{rules.GetCallback() && !rules.GetNotification(), "called by the CLI"},
		{rules.GetNotification(), "told by the CLI"},
		{rules.GetInternal(), "internal"},
	} {
		if word.on {
			words = append(words, word.text)
		}
	}
	return strings.Join(words, ", ")
}
