package schemagen

import (
	"strings"
	"testing"
	"testing/fstest"
)

func overlayOf(text string) (*overlay, error) {
	return loadOverlay(fstest.MapFS{"overlay/x.txt": {Data: []byte(text)}})
}

func TestOverlayLanguage(t *testing.T) {
	t.Parallel()
	o, err := overlayOf(`fragment Base -- never by itself
  id: string -- identifier
    -- and more
object Config -- a config
  first?: bool
  include Base
  tools?: [string]! -- presence
  byName: {[int]}
  mode?: "a"|"b"
  old?: Config|null
  free: json
enum E -- an enum
  one -- first
  two-b
union Out -- outputs
  t.one: Config
envelope Env by kind in body -- an envelope
  kind: string
  case x-y: Config
extend Known
  seen?: time
event a.b: Config
request session.do(Config) -> Config -- does it
  -- well
request ask() -> Config
callback cb(Config) -> Config
notify n(Config)
`)
	if err != nil {
		t.Fatal(err)
	}
	c := o.model.defs["Config"]
	var names []string
	for _, p := range c.Type.Props {
		names = append(names, p.Name)
	}
	if got := strings.Join(names, " "); got != "first id tools byName mode old free" {
		t.Errorf("members: got %q", got)
	}
	id := findProp(c.Type.Props, "id")
	if !id.Required || id.Doc != "identifier and more" {
		t.Errorf("id: got %+v", id)
	}
	for name, ok := range map[string]bool{
		"tools":  findProp(c.Type.Props, "tools").Type.Presence,
		"byName": findProp(c.Type.Props, "byName").Type.Elem.Elem.Kind == KindInt,
		"mode":   len(findProp(c.Type.Props, "mode").Type.Values) == 2,
		"old":    findProp(c.Type.Props, "old").Type.Nullable && findProp(c.Type.Props, "old").Type.Ref == "Config",
		"free":   findProp(c.Type.Props, "free").Type.Kind == KindAny,
		"enum":   len(o.model.defs["E"].Type.Values) == 2 && o.model.defs["E"].Type.Values[0].Doc == "first",
		"union":  o.model.defs["Out"].Type.Cases[0].Tag == "t.one",
		"env":    o.model.defs["Env"].Type.DataMember == "body" && o.model.defs["Env"].Type.Cases[0].Tag == "x-y",
		"extend": o.extends[0].Name == "Known" && o.extends[0].Type.Props[0].Type.Kind == KindTime,
		"event":  *o.events[0] == overlayEvent{"a.b", "Config"},
		"do": o.model.methods["session.do"].Root == RootSession &&
			o.model.methods["session.do"].Doc == "does it well",
		"ask":  o.model.methods["ask"].Root == RootServer && o.model.methods["ask"].Params == nil,
		"cb":   o.model.methods["cb"].Root == RootCallback && !o.model.methods["cb"].Notification,
		"n":    o.model.methods["n"].Notification && o.model.methods["n"].Result.Kind == KindNull,
		"home": c.Home == "x" && o.model.defs["Base"].Fragment,
	} {
		if !ok {
			t.Errorf("%s: wrong", name)
		}
	}
}

func TestOverlayErrors(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"unknown line":                "thing X\n",
		"member of nothing":           "  a: string\n",
		"comment of nothing":          "  -- text\n",
		"bad member":                  "object X\n  a string\n",
		"bad type":                    "object X\n  a: [string\n",
		"bad case":                    "union X\n  a b\n",
		"defined twice":               "object X\nobject X\n",
		"described twice":             "notify n()\nnotify n()\n",
		"include of nothing":          "object X\n  include Y\n",
		"include of what comes later": "object X\n  include Y\nobject Y\n  include Z\nobject Z\n  a: string\n",
	} {
		if _, err := overlayOf(text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestOverlayMustFitTheSchemas(t *testing.T) {
	t.Parallel()
	base := `"Known":{"type":"object","properties":{"a":{"type":"string"}}}`
	for name, text := range map[string]string{
		"definition of the schemas": "object Known\n  b: string\n",
		"method of the schemas":     "request session.go()\n",
		"member of the schemas":     "extend Known\n  a?: string\n",
		"extends nothing":           "extend Unknown\n  a?: string\n",
		"event of the schemas":      "object X\nevent note: X\n",
		"reference to nothing":      "object X\n  a: Nowhere\n",
	} {
		m, err := Merge([]*Model{modelOf(t, "1", base, method("go", "", `{"type":"null"}`))})
		if err != nil {
			t.Fatal(err)
		}
		o, err := overlayOf(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.applyOverlay(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestWordingErrors(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"no text": "A.b\n", "twice": "A -- x\nA -- y\n",
		"continues nothing": "-- x\n"} {
		if _, err := loadWording(fstest.MapFS{"words/x.txt": {Data: []byte(text)}}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	w, err := loadWording(fstest.MapFS{"words/x.txt": {Data: []byte("A.b -- one\n -- two\nC -- three\n")}})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.find("A.b"); got != "one two" {
		t.Errorf("got %q", got)
	}
	if dead := w.dead(); len(dead) != 1 || dead[0] != "words C" {
		t.Errorf("dead: got %q", dead)
	}
}
