package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/spf13/cobra"
)

func contextCommands() []command {
	return []command{
		{name: "add", args: "NAME --target ADDRESS [flags]", summary: "name a server", help: contextAddUsage,
			setup: setupContextAdd},
		{name: "use", args: "NAME | --local", summary: "choose the server that commands call", help: contextUseUsage,
			setup: setupContextUse, complete: completeContext, checksArgs: true},
		{name: "list", args: "[flags]", summary: "list the named servers", help: contextListUsage,
			setup: setupContextList},
		{name: "show", args: "[NAME] [flags]", summary: "print how a server is reached", help: contextShowUsage,
			setup: setupContextShow, complete: completeContext},
		{name: "remove", args: "NAME", summary: "forget a server", help: contextRemoveUsage,
			setup: setupContextRemove, complete: completeContext},
	}
}

const contextAddUsage = `Names a server, so that --context NAME, COPILOT_GRPC_CONTEXT or
"copilot-grpc context use NAME" choose it.

  copilot-grpc context add prod --target dns:///copilot.example:7443 --token-file ~/.copilot-token
  copilot-grpc context add lab --target lab:7443 --tls-ca lab-ca.pem --token-command 'pass show lab'

The file of contexts, copilot-grpc/contexts.json in your directory for configuration, has no secrets: a token is in
a file, in an environment variable, or printed by a command of the shell. Without one of these flags no token is sent.
Unix sockets and loopback addresses use plain text unless a TLS flag is set, all other servers TLS.`

var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func setupContextAdd(p *program, f *flags) action {
	var e endpoint
	f.StringVar(&e.Target, "target", "", "`address` of the server: HOST:PORT, dns:///HOST:PORT or unix:PATH")
	f.StringVar(&e.TokenFile, "token-file", "", "`file` with the bearer token, read again when it changes")
	f.StringVar(&e.TokenEnv, "token-env", "", "`name` of the environment variable with the bearer token")
	f.StringVar(&e.TokenCommand, "token-command", "", "`command` of the shell that prints the bearer token")
	f.StringVar(&e.TLSCA, "tls-ca", "", "PEM `file` of the CAs to trust (default: the system's)")
	f.StringVar(&e.TLSCert, "tls-cert", "", "PEM `file` of the client certificate")
	f.StringVar(&e.TLSKey, "tls-key", "", "PEM `file` of the key of --tls-cert")
	f.StringVar(&e.TLSServerName, "tls-server-name", "", "server `name` to verify in the server's certificate")
	replace := f.Bool("replace", false, "replace a context of that name")
	use := f.Bool("use", false, "also use the context from now on")
	return func(_ context.Context, args []string) error {
		name := args[0]
		if !contextName.MatchString(name) {
			return usageError{fmt.Errorf("the name %q has other characters than letters, digits, '.', '_' and '-', or "+
				"more than 64", name)}
		}
		if err := e.complete(); err != nil {
			return usageError{err}
		}
		err := p.changeContexts(func(known *contexts) error {
			if _, exists := known.Contexts[name]; exists && !*replace {
				return usageError{fmt.Errorf("the context %q exists: replace it with --replace", name)}
			}
			known.Contexts[name] = e
			if *use {
				known.Current = name
			}
			return nil
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(p.stdout, "added the context %s\n", name)
		if !*use {
			fmt.Fprintf(p.stdout, "use it with: copilot-grpc context use %s\n", name)
		}
		return nil
	}
}

// complete checks an endpoint and makes its paths absolute: it is used in any directory.
func (e *endpoint) complete() error {
	if e.Target == "" {
		return errors.New("want --target")
	}
	if err := checkTarget(e.Target); err != nil {
		return err
	}
	tokens := 0
	for _, one := range []string{e.TokenFile, e.TokenEnv, e.TokenCommand} {
		if one != "" {
			tokens++
		}
	}
	switch {
	case tokens > 1:
		return errors.New("--token-file, --token-env and --token-command exclude each other")
	case (e.TLSCert == "") != (e.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key need each other")
	}
	for flag, path := range map[string]*string{"token-file": &e.TokenFile, "tls-ca": &e.TLSCA, "tls-cert": &e.TLSCert,
		"tls-key": &e.TLSKey} {
		if *path == "" {
			continue
		}
		if _, err := os.Stat(*path); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	return nil
}

const contextUseUsage = `Chooses the server that commands call without --target and --context.

  copilot-grpc context use prod
  copilot-grpc context use --local

--local returns to the server on the local socket, which is the context without a name.`

func setupContextUse(p *program, f *flags) action {
	local := f.Bool("local", false, "use the server on the local socket again")
	return func(_ context.Context, args []string) error {
		name := ""
		if !*local {
			if err := want(args, "NAME"); err != nil {
				return err
			}
			name = args[0]
		} else if err := want(args); err != nil {
			return err
		}
		err := p.changeContexts(func(known *contexts) error {
			if _, err := known.find(name); name != "" && err != nil {
				return err
			}
			known.Current = name
			return nil
		})
		if err == nil {
			fmt.Fprintf(p.stdout, "commands call %s\n", contextLabel(name))
		}
		return err
	}
}

func contextLabel(name string) string {
	if name == "" {
		return "the server on the local socket"
	}
	return "the context " + name
}

const contextListUsage = `Lists the named servers. A star marks the context in use.`

// namedEndpoint is a context in JSON.
type namedEndpoint struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	endpoint
}

func setupContextList(p *program, f *flags) action {
	out := p.printer(f)
	return func(_ context.Context, _ []string) error {
		known, err := p.readContexts()
		if err != nil {
			return err
		}
		rows := table{columns: []column{{head: "CURRENT"}, {head: "NAME"}, {head: "TARGET"}, {head: "TOKEN"}}}
		for _, name := range slices.Sorted(maps.Keys(known.Contexts)) {
			e := known.Contexts[name]
			mark := ""
			if name == known.Current {
				mark = "*"
			}
			rows.add(namedEndpoint{name, name == known.Current, e}, mark, name, e.Target, e.tokenLabel())
		}
		if known.Current == "" {
			fmt.Fprintln(p.stderr, "No context is in use: commands call the server on the local socket.")
		}
		return out.print(rows)
	}
}

// tokenLabel says where the token is from.
func (e endpoint) tokenLabel() string {
	switch {
	case e.TokenFile != "":
		return "file " + e.TokenFile
	case e.TokenEnv != "":
		return "variable " + e.TokenEnv
	case e.TokenCommand != "":
		return "command " + e.TokenCommand
	}
	return "none"
}

const contextShowUsage = `Prints how a server is reached; without NAME that of the context in use.`

func setupContextShow(p *program, f *flags) action {
	out := p.printer(f)
	return func(_ context.Context, args []string) error {
		known, err := p.readContexts()
		if err != nil {
			return err
		}
		name := known.Current
		if len(args) == 1 {
			name = args[0]
		}
		if name == "" {
			local := connection{program: p}
			if err := local.local(); err != nil {
				return err
			}
			return out.record(local.server.fields(), namedEndpoint{"", true, local.server})
		}
		e, err := known.find(name)
		if err != nil {
			return err
		}
		return out.record(append([]field{{"name", name}}, e.fields()...), namedEndpoint{name, name == known.Current, e})
	}
}

func (e endpoint) fields() []field {
	return []field{{"target", e.Target}, {"token", e.tokenLabel()}, {"tls-ca", e.TLSCA}, {"tls-cert", e.TLSCert},
		{"tls-key", e.TLSKey}, {"tls-server-name", e.TLSServerName}}
}

const contextRemoveUsage = `Forgets a server. If it is the one in use, commands call the server on the local socket
again.`

func setupContextRemove(p *program, _ *flags) action {
	return func(_ context.Context, args []string) error {
		wasCurrent := false
		err := p.changeContexts(func(known *contexts) error {
			if _, err := known.find(args[0]); err != nil {
				return err
			}
			delete(known.Contexts, args[0])
			if wasCurrent = known.Current == args[0]; wasCurrent {
				known.Current = ""
			}
			return nil
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(p.stdout, "removed the context %s\n", args[0])
		if wasCurrent {
			fmt.Fprintf(p.stdout, "commands call %s\n", contextLabel(""))
		}
		return nil
	}
}

func completeContext(_ context.Context, p *program, _ *flags, args []string, _ string) []cobra.Completion {
	known, err := p.readContexts()
	if err != nil || len(args) > 0 {
		return nil
	}
	var names []cobra.Completion
	for _, name := range slices.Sorted(maps.Keys(known.Contexts)) {
		names = append(names, cobra.CompletionWithDesc(name, known.Contexts[name].Target))
	}
	return names
}
