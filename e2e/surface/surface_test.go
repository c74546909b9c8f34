package surface

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// Parts of the CLI's protocol that none of its schemas lists: found in its official SDKs and on the wire.
var (
	unlistedMethods = strings.Fields(`
		status.get auth.getStatus session.create session.resume session.destroy session.getMessages
		session.list session.getMetadata session.getLastId session.delete session.getForeground
		session.setForeground`)
	unlistedCallbacks = strings.Fields(`
		userInput.request exitPlanMode.request autoModeSwitch.request systemMessage.transform
		session.event session.lifecycle host.event shell.output shell.exit`)
	unlistedEvents = strings.Fields(`
		model.model_call_started model.message model.turn_started model.turn_ended model.model_call_success
		model.messages_snapshot model.response model.model_call_failure model.tool_execution model.turn_retry
		model.turn_failed model.log model.compaction_started model.compaction_completed model.telemetry
		model.response_limits_status model.compaction_static_context_blocked model.binary_attachments_removed model.image_processing
		model.captured_assignment_context model.embedding_retrieval_injection model.error model.history_truncated model.usage_info
		session.mcp_server_removed`)
)

// The whole surface of the CLI that runs is typed: the live server's reflection has every method, callback, event type
// and definition of its schemas, and everything that is known without being there. The generator has no part in it.
func TestSurface(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	api := reflected(t, r)
	cli := readSurface(t, schemaDir(t, r.Host.CLI))
	c := &checker{api: api, cli: cli, seen: map[string]bool{}, findings: map[string]bool{}}

	for _, m := range cli.methods {
		c.method(m)
	}
	c.value("SessionEvent", rawSchema{"$ref": "#/definitions/SessionEvent"}, slot{message: api.message("SessionEvent")})
	for _, name := range unlistedMethods {
		c.known(name, false)
	}
	for _, name := range unlistedCallbacks {
		c.known(name, true)
	}
	c.events()
	rest := c.unreached()
	for _, f := range c.told() {
		t.Error(f)
	}
	t.Logf("CLI %s: %d methods, %d callbacks, %d event types, %d definitions, %d of them unused by the schemas "+
		"themselves",
		r.Host.CLI, len(cli.methods)-cli.callbacks+len(unlistedMethods), cli.callbacks+len(unlistedCallbacks),
		len(cli.events)+len(unlistedEvents), len(cli.definitions), rest)
}

// schemaDir is where the CLI has put its schemas when it unpacked itself.
func schemaDir(t *testing.T, version string) string {
	t.Helper()
	cache, err := (&clibin.Locator{}).Dir()
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(filepath.Join(cache, "pkg", "*", version, "schemas"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("schemas of CLI %s below %s: found %q (%v)", version, cache, dirs, err)
	}
	return dirs[0]
}

// rawSchema is a node of a JSON schema.
type rawSchema map[string]any

// surface is what the schemas of one CLI version say.
type surface struct {
	definitions map[string]rawSchema
	methods     []rawMethod
	callbacks   int
	events      []string
}

// rawMethod is a method of the schemas.
type rawMethod struct {
	name           string
	callback       bool
	params, result any
}

func readSurface(t *testing.T, dir string) *surface {
	t.Helper()
	methods, events := readSchema(t, dir, "api.schema.json"), readSchema(t, dir, "session-events.schema.json")
	apart(methods, events)
	s := &surface{definitions: map[string]rawSchema{}}
	for _, doc := range []rawSchema{methods, events} {
		for name, d := range object(doc["definitions"]) {
			s.definitions[name] = object(d)
		}
		for _, tree := range []string{"server", "session", "clientSession", "clientGlobal"} {
			s.leaves(object(doc[tree]), strings.HasPrefix(tree, "client"))
		}
	}
	for _, v := range list(s.definitions["SessionEvent"]["anyOf"]) {
		properties := object(object(s.resolve(object(v)))["properties"])
		s.events = append(s.events, fmt.Sprint(object(properties["type"])["const"]))
	}
	// The oldest supported version has 366 methods and 133 event types.
	if len(s.methods) < 366 || len(s.events) < 133 || len(s.definitions) < 1500 || slices.Contains(s.events, "<nil>") {
		t.Fatalf("read only %d methods, %d event types, %d definitions", len(s.methods), len(s.events),
			len(s.definitions))
	}
	// A method in a tree that is not looked into would be missed by all that follows.
	if n := mentions(methods, "rpcMethod") + mentions(events, "rpcMethod"); n != len(s.methods) {
		t.Fatalf("read %d methods, and the schemas have %d", len(s.methods), n)
	}
	return s
}

func readSchema(t *testing.T, dir, file string) rawSchema {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return doc
}

// apart gives those definitions of the methods another name that the events define
// differently, so that both are compared.
func apart(methods, events rawSchema) {
	theirs := object(events["definitions"])
	own := object(methods["definitions"])
	differ := map[string]bool{}
	for name, d := range own {
		differ[name] = theirs[name] != nil && !reflect.DeepEqual(d, theirs[name])
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			if name, ok := strings.CutPrefix(fmt.Sprint(v["$ref"]), "#/definitions/"); ok && differ[name] {
				v["$ref"] = "#/definitions/" + name + ofMethods
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(map[string]any(methods))
	for name, is := range differ {
		if is {
			own[name+ofMethods] = own[name]
			delete(own, name)
		}
	}
}

// ofMethods marks a definition of the methods that the events have too, and differently.
const ofMethods = " (of methods)"

// mentions counts the objects that have a member.
func mentions(v any, member string) int {
	n := 0
	switch v := v.(type) {
	case rawSchema:
		return mentions(map[string]any(v), member)
	case []any:
		for _, e := range v {
			n += mentions(e, member)
		}
	case map[string]any:
		if _, ok := v[member]; ok {
			n++
		}
		for _, e := range v {
			n += mentions(e, member)
		}
	}
	return n
}

func (s *surface) leaves(tree rawSchema, callback bool) {
	for _, v := range tree {
		node := object(v)
		name, ok := node["rpcMethod"].(string)
		if !ok {
			s.leaves(node, callback)
			continue
		}
		s.methods = append(s.methods,
			rawMethod{name: name, callback: callback, params: node["params"], result: node["result"]})
		if callback {
			s.callbacks++
		}
	}
}

// resolve follows references.
func (s *surface) resolve(node rawSchema) rawSchema {
	for {
		ref, ok := node["$ref"].(string)
		if !ok {
			return node
		}
		node = s.definitions[ref[strings.LastIndex(ref, "/")+1:]]
	}
}

func object(v any) rawSchema {
	m, _ := v.(map[string]any)
	if r, ok := v.(rawSchema); ok {
		return r
	}
	return m
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// method looks for an rpc, and in its messages for all that the schemas say of its
// parameters and its result.
func (c *checker) method(m rawMethod) {
	rpc := c.known(m.name, m.callback)
	if rpc == nil {
		return
	}
	if m.params != nil {
		c.value(m.name+"?", object(m.params), slot{message: rpc.Input()})
	}
	if m.result != nil {
		c.value(m.name+"!", object(m.result), slot{message: rpc.Output()})
	}
}

// known looks for the rpc of a method.
func (c *checker) known(name string, callback bool) protoreflect.MethodDescriptor {
	rpc, ok := c.api.methods[name]
	if !ok {
		c.tell("%s: no rpc", name)
		return nil
	}
	if is := methodRules(rpc).GetCallback(); is != callback {
		c.tell("%s: callback is %v", name, is)
	}
	return rpc
}

// events looks for the case of every event type.
func (c *checker) events() {
	cases := map[string]bool{}
	data := c.api.message("SessionEvent").Oneofs().ByName("data").Fields()
	for i := range data.Len() {
		cases[fieldRules(data.Get(i)).GetTag()] = true
	}
	for _, typ := range slices.Concat(c.cli.events, unlistedEvents) {
		if !cases[typ] {
			c.tell("event %s: no case", typ)
		}
	}
}
