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

// configurationPage is the page that the test compares with the table.
const configurationPage = "../../docs/configuration.md"

// configurationHead begins the page.
const configurationHead = `<!-- From the table in internal/app/table.go: go test ./internal/app -run TestConfigurationPage -update -->

# Settings

Every setting of ` + "`copilot-grpc serve` and `doctor`" + ` is a flag, an environment variable and a key in the file of
` + "`--config FILE`" + ` (or ` + "`COPILOT_GRPC_CONFIG`" +
	`). A flag overrides a variable, a variable overrides the file, and the file overrides
the default. Values are never merged. There is no default file.

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

- A list is a list in the file. Commas separate its entries in flags and variables; flags may be repeated. A NAME=VALUE
  setting is a mapping in the file. Repeat its flag, or put one entry on each line of its variable.
- Durations have the form ` + "`90s`, `5m`, `1h30m`" + `. Sizes are numbers of bytes.
- An unknown key is an error, with a suggestion if a similar key exists. An invalid value is an error. All errors are
  reported at once, each with the key and the source of the value, for a file with the line.
- ` + "`copilot-grpc serve --print-config`" +
	` prints every setting and its source in the format of the file, without secrets.
- A **live** setting can change while the server runs. The server checks the file every two seconds. At SIGHUP it reloads the
  file, the policy, the certificates and the providers' files. If a file contains an error, the server logs it and changes
  nothing. If a setting that is not live changed, the server logs it; the new value needs a restart. A reload cannot add or
  remove TLS or the policy. A server without a file, policy or certificate exits at SIGHUP.
- Only the host owner's sessions use ` + "`home`, `user_home`, `work_dir`, `env`, `github_token`, `no_login`, `extension_launch`,\n  `multi_connection`, `profile_fields`, `profile_home` and `warm_runtimes`" + `. For other
  tenants the [policy](security.md#keys-of-the-policy-file) has ` + "`home`, `env`, `runtime_profile_fields` and `warm_runtimes`" + `.

` + "`copilot-grpc help serve`" + ` prints the same table. [security.md](security.md) describes the policy file.
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
		t.Errorf("%s is not what the table says (%v): run go test ./internal/app -run TestConfigurationPage -update",
			configurationPage, err)
	}
}

// A file shown on the page is a valid file.
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

// notSettings are the members that only the program sets, and why.
var notSettings = map[string]string{
	"Version":      "the linker's",
	"SingleClient": "the shim's, whose bridge is its own",
	"CLIArgs":      "the shim's, which takes them from its own command line",

	"OTLP": "follows from an endpoint, here or in OpenTelemetry's variables", "OTLPProtocol": "OpenTelemetry's variable",

	"MaxEphemeralBytes": constant, "ConfinementGrace": constant, "ConnectionAgeGrace": constant, "PingInterval": constant,
}

// constant says of a member that no operator has a reason to change it, while tests cannot wait for it.
const constant = "a constant that tests make smaller"

// Secrets sound like secrets.
func TestSecretsAreMarked(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	sound := regexp.MustCompile(`token|secret|password|credential|header|^env$`)
	for _, row := range c.Table().All() {
		if sound.MatchString(row.Key) != row.Secret {
			t.Errorf("%s: secret is %t", row.Key, row.Secret)
		}
	}
}
