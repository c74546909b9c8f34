package app

import (
	"flag"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/setting"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew")

// configurationPage is where users look.
const configurationPage = "../../docs/configuration.md"

// configurationHead begins the page.
const configurationHead = `<!-- From the table in internal/app/table.go: go test ./internal/app -run TestConfigurationPage -update -->

# Settings

Every setting of ` + "`copilot-grpc serve` and `doctor`" + ` is a flag, an environment variable and a key of the file that
` + "`--config FILE`" + ` (or ` + "`COPILOT_GRPC_CONFIG`" + `) names; the first of flag, variable, file and default decides, as a whole. There
is no file unless one is named.

` + "```yaml" + `
listen: [unix:/run/copilot-grpc/copilot-grpc.sock, "0.0.0.0:7443"]
tls_cert: /etc/copilot-grpc/cert.pem
tls_key: /etc/copilot-grpc/key.pem
policy: /etc/copilot-grpc/policy.yaml
log_format: json
callback_timeout: 10m
provider:
  openai: /etc/copilot-grpc/openai.json
` + "```" + `

- Lists are lists in the file; on flags and in variables commas separate their entries, and flags may be repeated. What
  is NAME=VALUE is a mapping in the file; such flags are repeated, and variables have a line for each.
- Times are written as in ` + "`90s`, `5m`, `1h30m`" + `, sizes as numbers of bytes.
- A key that there is not is an error, with the one that was meant where that can be guessed; so is a value that is not of
  its kind. Errors name the key and where the value is from.
- ` + "`copilot-grpc serve --print-config`" + ` prints every setting with where it is from, without secrets, in the form of a file.
- What is **live** can change while the server runs: it looks at the file every two seconds, and reads it, the policy, the
  certificates and the providers' files at SIGHUP. A file with any mistake changes nothing, and is logged. What is not live
  is logged too, and waits for a restart. A server neither begins nor ceases to have TLS or a policy while it runs. A server
  that has no file, policy or certificate ends at SIGHUP.

The same table is printed by ` + "`copilot-grpc help serve`" + `. Who may do what is in a file of its own: [security.md](security.md).
`

// The page says what the table says.
func TestConfigurationPage(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	var b strings.Builder
	b.WriteString(configurationHead)
	c.Table().Markdown(&b, EnvPrefix)
	if *update {
		if err := os.WriteFile(configurationPage, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(configurationPage); err != nil || string(text) != b.String() {
		t.Errorf("%s is not what the table says (%v): run go test ./internal/app -run TestConfigurationPage -update", configurationPage, err)
	}
}

// What the page shows as a file is one.
func TestConfigurationExample(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(configurationHead, "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	c := DefaultConfig()
	l := setting.NewLoader(c.Table(), EnvPrefix)
	if err := l.Load(func(string) string { return "" }, "example", []byte(example)); err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if len(c.Listen) != 2 || c.CallbackTimeout != 10*time.Minute || c.Providers["openai"] == "" {
		t.Errorf("%+v", c)
	}
}

// Every member of the configuration is in the table, once, under a name in the one style.
func TestTableIsWhole(t *testing.T) {
	t.Parallel()
	var c Config
	where := map[uintptr]string{}
	form := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	var keys []string
	for _, row := range c.Table().All() {
		p := reflect.ValueOf(row.Value).Pointer()
		if where[p] != "" || slices.Contains(keys, row.Key) || !form.MatchString(row.Key) || row.Help == "" {
			t.Errorf("%s: there twice, misnamed, or without help", row.Key)
		}
		where[p] = row.Key
		keys = append(keys, row.Key)
	}
	v := reflect.ValueOf(&c).Elem()
	for _, field := range reflect.VisibleFields(v.Type()) {
		if field.Anonymous { // its members come by themselves
			continue
		}
		if in, has := where[v.FieldByIndex(field.Index).Addr().Pointer()] != "", notSettings[field.Name] != ""; in == has {
			t.Errorf("Config.%s is in the table: %t, is no setting: %t", field.Name, in, has)
		}
	}
}

// notSettings are the members that nobody but the program itself sets, and why.
var notSettings = map[string]string{
	"Version": "the linker's",
	"Sole":    "the shim's, whose bridge is its own",
	"CLIArgs": "the shim's, which takes them from its own command line",
}

// Secrets sound like secrets.
func TestSecretsAreMarked(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	sound := regexp.MustCompile(`token|secret|password|credential|header|^env$`)
	for _, row := range c.Table().All() {
		if sound.MatchString(row.Key) != row.Traits.Has(setting.Secret) {
			t.Errorf("%s: secret is %t", row.Key, row.Traits.Has(setting.Secret))
		}
	}
}
