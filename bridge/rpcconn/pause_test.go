package rpcconn

import (
	"io"
	"slices"
	"testing"
)

// pieces is a stream that gives one piece with each read, and then ends.
type pieces [][]byte

func (p *pieces) Read(b []byte) (int, error) {
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := copy(b, (*p)[0])
	*p = (*p)[1:]
	return n, nil
}

func (p *pieces) Write(b []byte) (int, error) { return len(b), nil }
func (p *pieces) Close() error                { return nil }

// However a stream goes on or ends, nothing that was handed on is left without a pause.
func TestPause(t *testing.T) {
	t.Parallel()
	event := func(name string) string {
		return string(framed(string(eventPrefix) + `"e":"` + name + `"` + string(eventSuffix)))
	}
	long := event(string(make([]byte, readBufferSize)))
	for name, tc := range map[string]struct {
		in   pieces
		want string
	}{
		"one in each":        {pieces{[]byte(event("1")), []byte(event("2"))}, "|e|e|"},
		"two at once":        {pieces{[]byte(event("1") + event("2"))}, "|ee|"},
		"one and a half":     {pieces{[]byte(event("1") + event("2")[:30]), []byte(event("2")[30:])}, "|e|e|"},
		"a long one":         {pieces{[]byte(event("1") + long[:1000]), []byte(long[1000:40_000]), []byte(long[40_000:])}, "|e|e|"},
		"nonsense after one": {pieces{[]byte(event("1") + "nonsense\r\n\r\n")}, "|e|"},
	} {
		var got []byte
		c := New(&tc.in, Options{Event: func([]byte) { got = append(got, 'e') }, Pause: func() { got = append(got, '|') }})
		<-c.Done()
		c.Wait()
		if string(slices.CompactFunc(got, func(a, b byte) bool { return a == '|' && a == b })) != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
