package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Command returns the tree of all commands with their flags, for their manual pages.
func Command(version string) *cobra.Command {
	p := &program{version: version, stdout: &output{w: io.Discard}, getenv: func(string) string { return "" }, environ: func() []string { return nil },
		configDir: os.UserConfigDir}
	return p.root(true)
}

// root returns the tree of commands. Each parses its own flags, since an environment variable, or a
// flag of the CLI's, takes part; described commands have them for completion and manual pages.
func (p *program) root(described bool) *cobra.Command {
	root := &cobra.Command{
		Use: programName, Short: "Serve the GitHub Copilot CLI over gRPC",
		Version: p.version, SilenceErrors: true, SilenceUsage: true, DisableAutoGenTag: true,
		DisableFlagParsing: !described, SuggestionsMinimumDistance: 2,
		Args: cobra.ArbitraryArgs, RunE: noCommand,
	}
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	for _, c := range commands() {
		root.AddCommand(p.node(c, c.name, described))
	}
	return root
}

// node returns the command, or the group of commands, at a path of names.
func (p *program) node(c command, path string, described bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: strings.TrimSpace(c.name + " " + c.args), Short: c.summary,
		DisableFlagParsing: !described, DisableFlagsInUseLine: true, SuggestionsMinimumDistance: 2,
		Args: cobra.ArbitraryArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	if c.commands != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error { return p.runGroup(cmd, c, path, args) }
		for _, sub := range c.commands {
			cmd.AddCommand(p.node(sub, path+" "+sub.name, described))
		}
		return cmd
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.execute(cmd.Context(), p, path, args) }
	if described {
		f, _ := c.parser(p, path)
		_, cmd.Long, _ = strings.Cut(f.usage, "\n\n")
		cmd.Flags().AddFlagSet(f.FlagSet)
		p.completeValues(cmd, f)
		f.VisitAll(func(fl *pflag.Flag) { _, fl.Usage = pflag.UnquoteUsage(fl) }) // as shells and manual pages show it
		if c.complete != nil {
			cmd.ValidArgsFunction = p.completing(c.complete, f)
		}
	}
	return cmd
}

// parser returns the command line of a command, and what runs it.
func (c command) parser(p *program, path string) (*flags, action) {
	if c.setup == nil {
		return c.flags(p), func(ctx context.Context, args []string) error { return c.run(ctx, p, args) }
	}
	f := newFlags(path, c.args, c.help)
	f.SetInterspersed(true)
	return f, c.setup(p, f)
}

// execute reads the command line and runs the command.
func (c command) execute(ctx context.Context, p *program, path string, args []string) error {
	f, act := c.parser(p, path)
	if c.setup != nil {
		if err := f.parse(p, args); err != nil {
			return err
		}
		args = f.Args()
		warnOfVariables(p) // other commands have a way of their own to say it
		if err := c.checkArgs(args); err != nil {
			return err
		}
	}
	return act(ctx, args)
}

// operandWord is an argument in the first line of the help.
var operandWord = regexp.MustCompile(`^(\[?)([A-Z]+(?:\|[A-Z]+)?)(\.\.\.)?\]?$`)

// checkArgs checks the number of arguments.
func (c command) checkArgs(args []string) error {
	var names []string
	least := 0
	for word := range strings.FieldsSeq(c.args) {
		found := operandWord.FindStringSubmatch(word)
		if found == nil { // the flags
			break
		}
		names = append(names, found[2])
		if found[1] == "" {
			least = len(names)
		}
		if found[3] != "" && len(args) > least {
			return nil
		}
	}
	switch {
	case c.checksArgs || len(args) >= least && len(args) <= len(names):
		return nil
	case len(args) < least:
		names = names[:least]
	}
	return want(args, names...)
}

// runGroup is for command lines that name no command of a group.
func (p *program) runGroup(cmd *cobra.Command, c command, path string, args []string) error {
	if asksForHelp(args) {
		return p.printHelp(func(w io.Writer) { groupHelp(w, path, c) })
	}
	if err := noCommand(cmd, args); err != nil {
		return err
	}
	var names []string
	for _, sub := range c.commands {
		names = append(names, sub.name)
	}
	return usageError{fmt.Errorf("want a command: %s", strings.Join(names, ", "))}
}

func asksForHelp(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return strings.TrimLeft(arg, "-") == "h" || arg == "--help" })
}

const programName = "copilot-grpc"

// noCommand reports an unknown command with suggestions.
func noCommand(parent *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("there is no command %q", args[0])
	if near := parent.SuggestionsFor(args[0]); len(near) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(near, " or "))
	}
	return usageError{err}
}

// completion lists what a shell offers for the argument after args, which begins with word. A completion that ends with
// a colon is not the end of the argument.
type completion func(ctx context.Context, p *program, f *flags, args []string, word string) []cobra.Completion

func (p *program) completing(
	complete completion, f *flags,
) func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if err := f.readEnvironment(p); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		list, directive := complete(cmd.Context(), p, f, args, word), cobra.ShellCompDirectiveNoFileComp
		// fish alone passes the quotation mark before a word. It adds no space to a colon, and its script looks for the
		// word with the mark if it has to prevent a space.
		open := slices.ContainsFunc(list, func(one cobra.Completion) bool { return strings.HasSuffix(one, ":") })
		if open && !strings.HasPrefix(word, "'") {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return list, directive
	}
}
