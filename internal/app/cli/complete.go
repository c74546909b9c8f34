package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// bashWords is for a bash without the package bash-completion, on whose functions cobra's script depends. It takes the
// words apart at spaces: within quotation marks nothing is completed.
const bashWords = `
if ! declare -F _get_comp_words_by_ref >/dev/null; then
    __copilot-grpc_init_completion()
    {
        local line=${COMP_LINE:0:COMP_POINT}
        COMPREPLY=()
        read -ra words <<< "$line"
        [[ $line != *[[:space:]] ]] || words+=("")
        cword=$((${#words[@]} - 1))
        cur=${words[cword]} prev=${words[cword - 1]}
    }
fi
`

const completionName = "completion"

// completionCommand adds cobra's command "completion", whose mistakes are those of other commands, and whose script for
// bash works in any bash.
func (p *program) completionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	all := root.Commands()
	cmd := all[slices.IndexFunc(all, func(cmd *cobra.Command) bool { return cmd.Name() == completionName })]
	cmd.Args, cmd.DisableFlagParsing, cmd.SuggestionsMinimumDistance = cobra.ArbitraryArgs, true, 2
	var shells []string
	for _, shell := range cmd.Commands() {
		shells = append(shells, shell.Name())
		shell.Args = func(_ *cobra.Command, args []string) error { return want(args) }
		shell.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
		if shell.Name() == "bash" {
			script := shell.RunE
			shell.RunE = func(cmd *cobra.Command, args []string) error {
				if err := script(cmd, args); err != nil {
					return err
				}
				_, err := io.WriteString(p.stdout, bashWords)
				return err
			}
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if asksForHelp(args) {
			return p.printHelp(func(w io.Writer) {
				cmd.SetOut(w)
				_ = cmd.Help() // printHelp has the error
			})
		}
		if err := noCommand(cmd, args); err != nil {
			return err
		}
		return usageError{fmt.Errorf("want a shell: %s", strings.Join(shells, ", "))}
	}
}

// ofPaths are the names of flags' values that shells complete as paths.
var ofPaths = []string{"file", "directory", "path", "script", "NAME=FILE", "NAME=DIRECTORY"}

// completeValues has shells offer the values of flags: contexts, sessions, words and paths. For others they offer
// nothing.
func (p *program) completeValues(cmd *cobra.Command, f *flags) {
	f.VisitAll(func(fl *pflag.Flag) {
		var offer completion
		switch v := fl.Value.(type) {
		case *choice:
			offer = completeWords(v.of)
		case *choices:
			offer = completeWords(v.of)
		default:
			if name, _ := pflag.UnquoteUsage(fl); slices.Contains(ofPaths, name) {
				return
			}
			offer = map[string]completion{"context": completeContext, "session": completeSession}[fl.Name]
		}
		if offer == nil {
			offer = completeWords(nil)
		}
		value := func(ctx context.Context, p *program, f *flags, _ []string, word string) []cobra.Completion {
			return offer(ctx, p, f, nil, word)
		}
		_ = cmd.RegisterFlagCompletionFunc(fl.Name, p.completing(value, f)) // the flag exists, and has none yet
	})
}

func completeWords(words []string) completion {
	return func(context.Context, *program, *flags, []string, string) []cobra.Completion { return words }
}

// completeCall completes the METHOD of call, and in its REQUEST the names of fields and of enum values.
func completeCall(_ context.Context, _ *program, _ *flags, args []string, word string) []cobra.Completion {
	switch len(args) {
	case 0:
		return methodNames(word)
	case 1:
		if method, err := findMethod(args[0]); err == nil {
			return completeJSON(method.Input(), word)
		}
	}
	return nil
}

// methodNames are the names of methods that a word may become: with the package if it begins with one, else those of
// all services, and of the methods of which the first package has one.
func methodNames(word string) []cobra.Completion {
	var names []cobra.Completion
	add := func(name string) {
		if strings.HasPrefix(name, word) { // zsh needs seconds to choose among all
			names = append(names, name)
		}
	}
	for _, m := range methodsOf(packages...) {
		if strings.Contains(word, ".") {
			add(fullName(m))
		} else {
			add(shortName(m))
		}
	}
	for _, m := range methodsOf(packages[0]) {
		if found, err := findMethod(string(m.Name())); err == nil && found == m {
			add(string(m.Name()))
		}
	}
	return names
}

// completeJSON completes the last name in a JSON text that is not complete yet. Some shells pass the quotation mark
// before the text, too.
func completeJSON(d protoreflect.MessageDescriptor, word string) []cobra.Completion {
	text := strings.TrimPrefix(word, "'")
	start, options := jsonNames(d, text)
	var list []cobra.Completion
	for _, option := range options {
		if whole := text[:start] + option; strings.HasPrefix(whole, text) {
			list = append(list, whole)
		}
	}
	return list
}

// jsonNames returns what may stand at the end of an incomplete JSON text, and where it begins.
func jsonNames(d protoreflect.MessageDescriptor, text string) (start int, options []string) {
	// level is an object or a list that has not ended.
	type level struct {
		message protoreflect.MessageDescriptor // of the object; nil in a list, or if nothing is known
		field   protoreflect.FieldDescriptor   // whose value comes next
		entries protoreflect.FieldDescriptor   // of an object that is a map: its values
		list    bool
		key     bool // a name comes next
	}
	var levels []level
	for i := 0; i < len(text); i++ {
		var top *level
		if len(levels) > 0 {
			top = &levels[len(levels)-1]
		}
		switch c := text[i]; {
		case c == '{' || c == '[':
			next := level{list: c == '[', key: c == '{'}
			switch {
			case top == nil:
				next.message = d
			case top.field == nil:
			case c == '[':
				next.field = top.field
			case top.field.IsMap() && !top.list:
				next.entries = top.field.MapValue()
			default:
				next.message = top.field.Message()
			}
			levels = append(levels, next)
		case top == nil:
		case c == '}' || c == ']':
			levels = levels[:len(levels)-1]
		case c == ',' && !top.list:
			top.key, top.field = true, nil
		case c == '"':
			end := stringEnd(text, i)
			if end < 0 {
				if top.key {
					return i, keys(top.message)
				}
				return i, values(top.field)
			}
			if top.key {
				var name string
				_ = json.Unmarshal([]byte(text[i:end]), &name) // a name that is none has no field
				top.key, top.field = false, top.entries
				if top.message != nil {
					top.field = fieldNamed(top.message, name)
				}
			}
			i = end - 1
		}
	}
	if n := len(levels); n > 0 && levels[n-1].key {
		return len(text), keys(levels[n-1].message)
	}
	return 0, nil
}

// stringEnd is the position after the JSON string that begins at start; -1 if it does not end.
func stringEnd(text string, start int) int {
	for i := start + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// keys are the names of a message's fields as JSON with the colon.
func keys(d protoreflect.MessageDescriptor) []string {
	if d == nil || wellKnown(d) {
		return nil
	}
	list := fieldNames(d)
	for i, name := range list {
		list[i] = `"` + name + `":`
	}
	slices.Sort(list)
	return list
}

func values(field protoreflect.FieldDescriptor) []string {
	if field == nil || field.Enum() == nil {
		return nil
	}
	list := valueNames(field.Enum())
	for i, name := range list {
		list[i] = `"` + name + `"`
	}
	return list
}
