package natsstore

import (
	"context"
	"encoding/hex"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

// Different texts have different tokens, and every token is valid and bounded. The inverse function here knows only the
// rule that token states.
func TestTokens(t *testing.T) {
	t.Parallel()
	valid := regexp.MustCompile(`^[-=_A-Za-z0-9]{1,130}$`)
	escape := regexp.MustCompile(`=[0-9a-f]{2}`)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a.=*> 0-9]{0,200}`)).Draw(t, "text")
		got := token(text)
		if !valid.MatchString(got) {
			t.Fatalf("the token of %q is %q", text, got)
		}
		if strings.HasPrefix(got, "==") {
			if len(got) != 2+64 {
				t.Fatalf("the digest of %q is %q", text, got)
			}
			return
		}
		back := escape.ReplaceAllStringFunc(got, func(s string) string {
			b, err := hex.DecodeString(s[1:])
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		})
		if back != text {
			t.Fatalf("the token of %q is %q, which is %q", text, got, back)
		}
	})
	if a, b := token(strings.Repeat("x", 129)), token(strings.Repeat("x", 130)); a == b {
		t.Errorf("two long texts have the token %q", a)
	}
	if got := token(strings.Repeat("x", 128)); got != strings.Repeat("x", 128) {
		t.Errorf("a text of 128 letters has the token %q", got)
	}
}

func TestOlderThan(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"2.15.2": false, "2.15.3": false, "2.16.0-preview.1": false, "3.0.0": false, "v2.15.2": false,
		"2.15.2-RC.1": false,
		"2.15.1":      true, "2.9.25": true, "2.15": true, "": true, "x": true, "2.x.9": true,
	} {
		if got := olderThan(version, MinVersion); got != want {
			t.Errorf("version %q is older than %s: %v, want %v", version, MinVersion, got, want)
		}
	}
}

func TestRisks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		recipe Recipe
		says   []string
	}{
		{Recipe{Version: "2.15.2", Clustered: true, Replicas: 3, Sync: SyncAlways}, nil},
		{Recipe{Version: "2.15.2", Clustered: true, Replicas: 5, Sync: SyncUnknown}, nil},
		{
			Recipe{Version: "2.10.0", Replicas: 1, Sync: SyncInterval},
			[]string{`"2.10.0"`, "1 replica", "sync_interval"},
		},
	} {
		got := risks(c.recipe)
		if len(got) != len(c.says) {
			t.Errorf("the risks of %+v are %q", c.recipe, got)
			continue
		}
		for i, says := range c.says {
			if !strings.Contains(got[i], says) {
				t.Errorf("risk %q of %+v does not say %q", got[i], c.recipe, says)
			}
		}
	}
}

// nats-server 2.15.2 gives these answers.
func TestParseSync(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]Sync{
		`{"server":{},"data":{"config":{"sync_interval":120000000000,"sync_always":true}}}`: SyncAlways,
		`{"server":{},"data":{"config":{"sync_interval":120000000000}}}`:                    SyncInterval,
		`{"server":{},"data":{"disabled":true,"config":{}}}`:                                SyncUnknown,
		`{"server":{},"error":{"code":400}}`:                                                SyncUnknown,
		`x`:                                                                                 SyncUnknown,
	} {
		if got := parseSync([]byte(answer), SyncUnknown); got != want {
			t.Errorf("%s says %q, want %q", answer, got, want)
		}
	}
}

// A message is "I/N DATA" for a part, or "removed ".
func TestContent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		messages []string
		want     string
		missing  bool
		fails    bool
	}{
		"none":                         {missing: true},
		"a write":                      {messages: []string{"1/1 a"}, want: "a"},
		"an empty write":               {messages: []string{"1/1 "}, want: ""},
		"the last write":               {messages: []string{"1/1 a", "1/1 b"}, want: "b"},
		"parts":                        {messages: []string{"1/2 a", "2/2 b"}, want: "ab"},
		"a part is missing":            {messages: []string{"1/1 x", "1/2 a"}, want: "x"},
		"the first part is missing":    {messages: []string{"2/2 b"}, missing: true},
		"a second attempt of parts":    {messages: []string{"1/2 a", "1/2 c", "2/2 d"}, want: "cd"},
		"a shorter write after a part": {messages: []string{"1/3 a", "2/3 b", "1/1 c"}, want: "c"},
		"a removal":                    {messages: []string{"1/1 a", "removed "}, missing: true},
		"after a removal":              {messages: []string{"1/1 a", "removed ", "1/1 b"}, want: "b"},
		"no part":                      {messages: []string{" a"}, fails: true},
		"part 0":                       {messages: []string{"0/1 a"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got content
			var err error
			for i, message := range c.messages {
				part, data, _ := strings.Cut(message, " ")
				h := nats.Header{headerName: {`"f"`}, headerTerm: {"3"}, headerPart: {part}}
				if err == nil {
					err = got.add(h, []byte(data), uint64(i+1))
				}
			}
			if (err != nil) != c.fails || err == nil && (got.exists == c.missing || string(got.data) != c.want) {
				t.Errorf("the content is %q, %v, %v", got.data, got.exists, err)
			}
		})
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for data, want := range map[string][]string{
		"": {""}, "a": {"a"}, "abc": {"abc"}, "abcd": {"abc", "d"}, "abcdef": {"abc", "def"},
	} {
		var got []string
		for _, piece := range split([]byte(data), 3) {
			got = append(got, string(piece))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q is split into %q, want %q", data, got, want)
		}
	}
}

// A process that did not receive the acknowledgement of its record knows the record as its own.
func TestOwnRecordIsAdopted(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
	s, err := Open(t.Context(), Config{InProcess: n, Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r := s.Requests(func(_, id string) (string, uint64) { return id, 1 })
	q := backend.Request{
		Key: backend.Key{Operation: "Send\x00s", ID: "1"}, Expires: time.Now().Add(time.Hour),
	}
	if err := r.Add(q); err != nil {
		t.Fatal(err)
	}
	clear(r.known)
	q.Type, q.Answer = "T", []byte("answer")
	if err := r.Add(q); err != nil {
		t.Fatalf("the answer to a request of this process: %v", err)
	}
	if _, answer, err := r.Answer(q.Key); err != nil || string(answer) != "answer" {
		t.Errorf("the answer is %q, %v", answer, err)
	}
}

// A request that is not answered is repeated until the time of all is over. Another error ends it.
func TestRepeat(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lost int
		err  error
		want error
	}{
		"answered late":   {lost: 2},
		"refused late":    {lost: 1, err: errRefused, want: errRefused},
		"never answered":  {lost: 100, want: context.DeadlineExceeded},
		"refused at once": {err: errRefused, want: errRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 18*time.Second)
				defer cancel()
				calls := 0
				err := repeat(ctx, 5*time.Second, func(ctx context.Context) error {
					if calls++; calls <= test.lost {
						<-ctx.Done()
						return ctx.Err()
					}
					return test.err
				})
				if !errors.Is(err, test.want) || calls != min(test.lost+1, 4) {
					t.Errorf("after %d calls: %v", calls, err)
				}
			})
		})
	}
}

var errRefused = errors.New("refused")

// Only "I/N" with 1 <= I <= N is a part.
func TestParsePart(t *testing.T) {
	t.Parallel()
	if i, n, ok := parsePart("2/3"); i != 2 || n != 3 || !ok {
		t.Errorf("%d of %d, %v", i, n, ok)
	}
	for _, text := range []string{"", "1", "0/1", "2/1", "1/1x", "1/1/1", "+1/1", " 1/1", "01/1", "1/\u0661"} {
		if _, _, ok := parsePart(text); ok {
			t.Errorf("%q is a part", text)
		}
	}
}
