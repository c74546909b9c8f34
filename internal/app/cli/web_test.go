package cli

import (
	"bytes"
	"strings"
	"testing"

	"rsc.io/qr"
)

func TestWebLinkCommand(t *testing.T) {
	t.Parallel()
	target := server(t)
	for args, want := range map[string]result{
		"web":                          {exitUsage, "", "want a command: link"},
		"web links":                    {exitUsage, "", "did you mean link?"},
		"web link x":                   {exitUsage, "", `unexpected argument "x"`},
		"web link --role king":         {exitUsage, "", `"king" is none of observer`},
		"web link --role unspecified":  {exitUsage, "", "is none of observer"},
		"web link --ttl soon":          {exitUsage, "", "ttl"},
		"web link --target " + target:  {exitFailed, "", "the server has no listener for browsers"},
		"web link --help":              {exitOK, "--role", ""},
		"web link --target unix:/none": {exitNoServer, "", "Unavailable"},
	} {
		got := run(t, nil, "", strings.Fields(args)...)
		if got.code != want.code || !strings.Contains(got.stdout, want.stdout) ||
			!strings.Contains(got.stderr, want.stderr) {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// The printed blocks are the modules of the code, with a border, in black on white.
func TestQRCode(t *testing.T) {
	t.Parallel()
	const text = "http://127.0.0.1:7780/login#7OTZBDD4H2P4HONDUCN32ZGFQV"
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := printQR(&out, text); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for n, line := range lines {
		line, colored := strings.CutPrefix(line, "\x1b[30;107m")
		line, reset := strings.CutSuffix(line, "\x1b[0m")
		row := []rune(line)
		if !colored || !reset || len(row) != code.Size+2*quiet {
			t.Fatalf("line %d: %q", n, lines[n])
		}
		for i, r := range row {
			x, y := i-quiet, 2*n-quiet
			if upper := r == '▀' || r == '█'; upper != code.Black(x, y) {
				t.Fatalf("module %d, %d is wrong", x, y)
			}
			if lower := r == '▄' || r == '█'; lower != code.Black(x, y+1) {
				t.Fatalf("module %d, %d is wrong", x, y+1)
			}
		}
	}
	if len(lines)*2 < code.Size+2*quiet {
		t.Errorf("%d lines for %d modules", len(lines), code.Size)
	}
}
