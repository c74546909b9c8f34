package conformance

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCasesAreValid(t *testing.T) {
	t.Parallel()
	cases, err := Load("cases")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if !strings.HasSuffix(strings.TrimSpace(c.About), ".") {
			t.Errorf("%s: about %q is not a sentence", c.Name, c.About)
		}
		for _, call := range c.Wire {
			m, err := methodNamed(call.Method)
			if err != nil {
				t.Fatal(err)
			}
			for i, b := range call.Beats {
				if b.Send == nil {
					continue
				}
				if _, err := b.response(m.Output(), 1); err != nil {
					t.Errorf("%s: %s, beat %d: %v", c.Name, call.Method, i, err)
				}
			}
		}
	}
	known, err := loadKnown("known-failures.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range known {
		used := false
		for _, c := range cases {
			used = used || k.matches(c.Name, k.language, k.cli)
		}
		if !used {
			t.Errorf("no case has a name like %q", k.pattern)
		}
	}
}

func TestInvalidCasesAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{name: x, nmae: y}":                                         "unknown field",
		"{name: x, steps: [{fly: {}}], wire: []}":                    "fly",
		"{name: x, steps: [{expect: {}}], wire: []}":                 "no action",
		"{name: x, steps: [{connect: {}}]}":                          "either",
		"{name: x, wire: [{on: Fly}]}":                               `no method "Fly"`,
		"{name: x, wire: [{on: Attach, do: [{sned: {}}]}]}":          "sned",
		"{name: x, model: {}, wire: [{on: Run}]}":                    "either",
		"{name: x, wire: [{on: Run}]}, {name: x, wire: [{on: Run}]}": "two cases",
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "f.yaml"), []byte("cases: ["+text+"]"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(folder); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: err = %v, want one with %q", text, err, want)
		}
	}
}

func TestDiffer(t *testing.T) {
	t.Parallel()
	list := []any{"a", "b", "c"}
	object := func(v any) map[string]any { return map[string]any{"x": v} }
	for i, tc := range []struct {
		want, got any
		differ    bool
	}{
		{"a", "a", false}, {"a", "b", true}, {"~^a+$", "aaa", false}, {"~^a+$", "ab", true}, {"a", nil, true},
		{7, "7", false}, {uint64(7), "8", true}, {true, true, false}, {false, true, true},
		{nil, nil, false}, {nil, "", false}, {nil, "x", true}, {nil, map[string]any{"kind": "STATUS"}, true},
		{object("a"), map[string]any{"x": "a", "y": "b"}, false}, {object("a"), map[string]any{"y": "a"}, true},
		{list, list, false}, {list[:2], list, true}, {[]any{"b", "a", "c"}, list, true},
		{map[string]any{"contains": []any{"a", "c"}}, list, false},
		{map[string]any{"contains": []any{"c", "a"}}, list, true},
		{map[string]any{"lacks": "d"}, list, false}, {map[string]any{"lacks": "b"}, list, true},
	} {
		if d := differ("x", tc.want, tc.got); (d != "") != tc.differ {
			t.Errorf("%d: %v and %v: %q", i, tc.want, tc.got, d)
		}
	}
}

func TestProxyCuts(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(listener, "tcp", server.Addr().String())
	defer p.close()
	echo := func(text string) string {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, text)
		if text == "whole" {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		got, _ := io.ReadAll(conn)
		return string(got)
	}
	p.cutAfter(3)
	if got := echo("hello"); got != "hel" {
		t.Errorf("after a cut: %q", got)
	}
	if got := echo("whole"); !strings.HasPrefix("whole", got) {
		t.Errorf("without a cut: %q", got)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	table := Table([]Verdict{
		{Case: "b/1", Language: "python", Transport: TLS},
		{Case: "a/1", Language: "go", Transport: Unix},
		{Case: "a/2", Language: "go", Transport: Unix, Err: io.EOF, Known: "a reason"},
		{Case: "a/3", Language: "go", Transport: Unix, Err: io.EOF},
	})
	want := "| family | go, unix | python, tls |\n|---|---|---|\n| a | 1 of 3, 1 known | |\n| b | | 1 of 1 |\n"
	if table != want {
		t.Errorf("table = %q, want %q", table, want)
	}
}
