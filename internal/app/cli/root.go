package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Command returns the tree of all commands with their flags, for their manual pages.
func Command(version string) *cobra.Command {
	p := &program{version: version, getenv: func(string) string { return "" }, environ: func() []string { return nil }}
	return p.root(true)
}

// root returns the tree of commands. Each parses its own flags, since an environment variable, or a
// flag of the CLI's, takes part; described commands have them for completion and manual pages.
func (p *program) root(described bool) *cobra.Command {
	root := &cobra.Command{
		Use: programName, Short: "Serve the GitHub Copilot CLI over gRPC",
		Version: p.version, SilenceErrors: true, SilenceUsage: true, DisableAutoGenTag: true,
		DisableFlagParsing: !described, SuggestionsMinimumDistance: 2,
		Args: noCommand, RunE: noCommand,
	}
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	for _, c := range commands() {
		cmd := &cobra.Command{
			Use: strings.TrimSpace(c.name + " " + c.args), Short: c.summary, DisableFlagParsing: !described,
			DisableFlagsInUseLine: true,
			RunE: func(cmd *cobra.Command,
				args []string) error {
				return c.run(cmd.Context(), p, args)
			},
		}
		if described {
			f := c.flags(p)
			_, cmd.Long, _ = strings.Cut(f.usage, "\n\n")
			cmd.Flags().AddFlagSet(f.FlagSet)
		}
		cmd.ValidArgsFunction = cobra.NoFileCompletions
		if c.name == "call" {
			cmd.ValidArgsFunction = completeMethod
		}
		root.AddCommand(cmd)
	}
	return root
}

// programName is the program's name.
const programName = "copilot-grpc"

// noCommand reports an unknown command with suggestions.
func noCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("there is no command %q", args[0])
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(near, " or "))
	}
	return usageError{err}
}

// completeMethod completes the METHOD of call; a REQUEST is not completed.
func completeMethod(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var methods strings.Builder
	listMethods(&methods)
	return strings.Fields(methods.String()), cobra.ShellCompDirectiveNoFileComp
}
