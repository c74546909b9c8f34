package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/internal/fileperm"
	"github.com/copilot-grpc/copilot-grpc/internal/setting"
)

// endpoint is a server and how it is reached. It has no secret: the token is in a file, in a variable, or printed by a
// command.
type endpoint struct {
	Target        string `json:"target"`
	TokenFile     string `json:"token_file,omitempty"`
	TokenEnv      string `json:"token_env,omitempty"`
	TokenCommand  string `json:"token_command,omitempty"`
	TLSCA         string `json:"tls_ca,omitempty"`
	TLSCert       string `json:"tls_cert,omitempty"`
	TLSKey        string `json:"tls_key,omitempty"`
	TLSServerName string `json:"tls_server_name,omitempty"`
}

// options are the client's options. Without a token of its own an endpoint gets none: that of the environment is for
// another server.
func (e endpoint) options(p *program) copilot.Option {
	opts := []copilot.Option{copilot.WithoutToken()}
	switch {
	case e.TokenFile != "":
		opts = append(opts, copilot.WithTokenSource(copilot.TokenFromFile(e.TokenFile)))
	case e.TokenEnv != "":
		opts = append(opts, copilot.WithTokenSource(func(context.Context) (string, error) {
			if token := strings.TrimSpace(p.getenv(e.TokenEnv)); token != "" {
				return token, nil
			}
			return "", fmt.Errorf("the environment variable %s, which has the context's token, is empty", e.TokenEnv)
		}))
	case e.TokenCommand != "":
		opts = append(opts, copilot.WithTokenSource((&tokenCommand{program: p, text: e.TokenCommand}).token))
	}
	if e.TLSCA != "" {
		opts = append(opts, copilot.WithCAFile(e.TLSCA))
	}
	if e.TLSCert != "" {
		opts = append(opts, copilot.WithClientCertificate(e.TLSCert, e.TLSKey))
	}
	if e.TLSServerName != "" {
		opts = append(opts, copilot.WithServerName(e.TLSServerName))
	}
	return copilot.WithOptions(opts...)
}

const (
	// tokenAge is how long a command's token is used before the command runs again.
	tokenAge = time.Minute
	// tokenTimeout bounds a command, which may ask the user something.
	tokenTimeout = time.Minute
)

// tokenCommand is a command of the shell that prints a token.
type tokenCommand struct {
	program *program
	text    string

	mu      sync.Mutex
	printed string
	at      time.Time
}

// token returns the token. Concurrent calls wait for one run of the command.
func (c *tokenCommand) token(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.printed != "" && time.Since(c.at) < tokenAge {
		return c.printed, nil
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	shell := []string{"sh", "-c"}
	if runtime.GOOS == "windows" {
		shell = []string{"cmd", "/C"}
	}
	cmd := exec.CommandContext(ctx, shell[0], shell[1], c.text)
	cmd.Stderr, cmd.WaitDelay = c.program.stderr, time.Second
	out, err := cmd.Output()
	token := strings.TrimSpace(string(out))
	switch {
	case err != nil:
		return "", fmt.Errorf("the command for the context's token, %q: %w", c.text, err)
	case token == "" || strings.ContainsAny(token, " \r\n"):
		return "", fmt.Errorf("the command for the context's token, %q, did not print one word", c.text)
	}
	c.printed, c.at = token, time.Now()
	return token, nil
}

type contexts struct {
	// Current is the context in use; empty for the local socket.
	Current  string              `json:"current,omitempty"`
	Contexts map[string]endpoint `json:"contexts,omitempty"`
}

func (c contexts) find(name string) (endpoint, error) {
	found, ok := c.Contexts[name]
	if ok {
		return found, nil
	}
	names := slices.Sorted(maps.Keys(c.Contexts))
	if near := setting.Nearest(name, names); near != "" {
		return found, usageError{fmt.Errorf("there is no context %q; did you mean %s?", name, near)}
	}
	return found, usageError{fmt.Errorf("there is no context %q: \"copilot-grpc context list\" lists them, and "+
		"\"copilot-grpc context add\" adds one", name)}
}

// errNoConfigDir is for users without a directory for configuration.
var errNoConfigDir = errors.New("contexts are stored in your directory for configuration")

// contextsPath is the path of the file. A link to the file stays one.
func (p *program) contextsPath() (string, error) {
	dir, err := p.configDir()
	if err != nil {
		return "", fmt.Errorf("%w, and %w: set HOME", errNoConfigDir, err)
	}
	path := filepath.Join(dir, "copilot-grpc", "contexts.json")
	if linked, err := filepath.EvalSymlinks(path); err == nil {
		return linked, nil
	}
	return path, nil
}

const maxContexts = 1 << 20

// readContexts reads the file. There are no contexts if it does not exist.
func (p *program) readContexts() (contexts, error) {
	path, err := p.contextsPath()
	if err != nil {
		return contexts{}, err
	}
	return readContextsFile(path)
}

func readContextsFile(path string) (contexts, error) {
	text, err := readFile("the file of contexts", path, maxContexts)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return contexts{}, nil
	case err != nil:
		return contexts{}, err
	}
	// Who can write the file can have a command run and learn tokens.
	found, err := fileperm.Check(path, fileperm.Trusted)
	if err != nil {
		return contexts{}, fmt.Errorf("the file of contexts: %w", err)
	}
	for _, one := range found {
		if one.Grave {
			return contexts{}, fmt.Errorf("the file of contexts: %w", one)
		}
	}
	var known contexts
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // what a newer version wrote must not get lost
	if err := decoder.Decode(&known); err != nil {
		return contexts{}, fmt.Errorf("the file of contexts %q is damaged, or from a newer version: %w", path, err)
	}
	return known, nil
}

// changeContexts changes the file, which has the old or the new content even after a crash. Commands that run at the
// same time take turns.
func (p *program) changeContexts(change func(*contexts) error) error {
	path, err := p.contextsPath()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("the file of contexts: %w", err)
	}
	lock := flock.New(path+".lock", flock.SetPermissions(0o600))
	if err := lock.Lock(); err != nil {
		return fmt.Errorf("the file of contexts: %w", err)
	}
	defer lock.Close()
	known, err := readContextsFile(path)
	if err != nil {
		return err
	}
	if known.Contexts == nil {
		known.Contexts = map[string]endpoint{}
	}
	if err := change(&known); err != nil {
		return err
	}
	text, err := json.MarshalIndent(known, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(path, append(text, '\n')); err != nil {
		return fmt.Errorf("the file of contexts: %w", err)
	}
	return nil
}

// replaceFile replaces a file, atomically, by one that only the user can read.
func replaceFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".contexts-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
