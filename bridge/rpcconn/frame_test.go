package rpcconn

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// readAll returns copies of all frames and how the stream ended.
func readAll(src io.Reader, maxFrame int) (bodies []string, end error) {
	f := newFrameReader(src, maxFrame)
	for {
		body, err := f.next()
		if err != nil {
			return bodies, err
		}
		bodies = append(bodies, string(body))
	}
}

func TestFrames(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("0123456789", 40_000) // over the read buffer and the first big one
	const limit = 1 << 20
	for name, tc := range map[string]struct {
		in   string
		want []string
		end  error
	}{
		"nothing":         {in: "", end: ErrPeerClosed},
		"one":             {in: "Content-Length: 2\r\n\r\n{}", want: []string{"{}"}, end: ErrPeerClosed},
		"case and spaces": {in: "content-LENGTH:2 \t\r\n\r\n{}", want: []string{"{}"}, end: ErrPeerClosed},
		"extra headers": {in: "X: y\r\nContent-Length: 2\r\nContent-Type: a; b=c:d\r\n\r\n{}", want: []string{"{}"},
			end: ErrPeerClosed},
		"same length twice": {in: "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", want: []string{"{}"},
			end: ErrPeerClosed},
		"leading zeros": {in: "Content-Length: 0002\r\n\r\n{}", want: []string{"{}"}, end: ErrPeerClosed},
		"empty body": {in: "Content-Length: 0\r\n\r\nContent-Length: 1\r\n\r\n1", want: []string{"", "1"},
			end: ErrPeerClosed},
		"big between small": {in: string(framed("a")) + string(framed(big)) + string(framed("b")),
			want: []string{"a", big, "b"}, end: ErrPeerClosed},
		"exactly the limit": {in: string(framed(strings.Repeat("x", limit))),
			want: []string{strings.Repeat("x", limit)}, end: ErrPeerClosed},
		"over the limit": {in: "Content-Length: 1048577\r\n\r\n", end: ErrFrameTooLarge},
		"overflow":       {in: "Content-Length: 18446744073709551618\r\n\r\n{}", end: ErrFrameTooLarge},
		"negative":       {in: "Content-Length: -1\r\n\r\n", end: ErrBadFrame},
		"signed":         {in: "Content-Length: +2\r\n\r\n{}", end: ErrBadFrame},
		"hex":            {in: "Content-Length: 0x2\r\n\r\n{}", end: ErrBadFrame},
		"no digits":      {in: "Content-Length: \r\n\r\n{}", end: ErrBadFrame},
		"two lengths":    {in: "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", end: ErrBadFrame},
		"no length":      {in: "Content-Type: x\r\n\r\n{}", end: ErrBadFrame},
		"no colon":       {in: "Content-Length 2\r\n\r\n{}", end: ErrBadFrame},
		"no name":        {in: ": 2\r\n\r\n{}", end: ErrBadFrame},
		"blank header":   {in: "\r\n\r\n", end: ErrBadFrame},
		"json lines":     {in: strings.Repeat(`{"jsonrpc":"2.0"}`+"\n", 1000), end: ErrBadFrame},
		"endless header": {in: strings.Repeat("x", 100_000), end: ErrBadFrame},
		"long header": {in: "X: " + strings.Repeat("x", 5000) + "\r\nContent-Length: 2\r\n\r\n{}",
			end: ErrBadFrame},
		"ends in header":   {in: "Content-Le", end: ErrTruncated},
		"ends in body":     {in: "Content-Length: 3\r\n\r\n{}", end: ErrTruncated},
		"ends in big body": {in: "Content-Length: 900000\r\n\r\n" + big, end: ErrTruncated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for how, src := range map[string]io.Reader{
				"whole": strings.NewReader(tc.in), "bytes": iotest.OneByteReader(strings.NewReader(tc.in)),
				"halves":     iotest.HalfReader(strings.NewReader(tc.in)),
				"with error": iotest.DataErrReader(strings.NewReader(tc.in)),
			} {
				got, end := readAll(src, limit)
				if !equal(got, tc.want) {
					t.Errorf("%s: got %d frames, want %d: %.80q", how, len(got), len(tc.want), got)
				}
				if !errors.Is(end, tc.end) || !errors.Is(end, ErrClosed) {
					t.Errorf("%s: ended with %v, want %v", how, end, tc.end)
				}
			}
		})
	}
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// A length alone costs nothing: memory follows the bytes that come.
func TestFrameLengthIsNotTrusted(t *testing.T) {
	t.Parallel()
	f := newFrameReader(strings.NewReader("Content-Length: 1000000000\r\n\r\nabc"), 1<<30)
	if _, err := f.next(); !errors.Is(err, ErrTruncated) {
		t.Fatalf("got %v", err)
	}
	if n := cap(*f.big); n > bigKeep { // the buffer may be one that served before
		t.Errorf("%d bytes allocated for 3", n)
	}
}

func TestFrameReadErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if _, err := readAll(iotest.ErrReader(broken), 10); !errors.Is(err, ErrReadFailed) || !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if _, err := readAll(stuck{}, 10); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a source that gives nothing: %v", err)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

// FuzzFrame checks that how the bytes are cut up changes nothing, and that
// what can be read can be written and read again.
func FuzzFrame(f *testing.F) {
	for _, seed := range []string{"Content-Length: 2\r\n\r\n{}",
		"content-length:1\r\nA: b\r\n\r\n1Content-Length: 0\r\n\r\n", "Content-Length: -1\r\n\r\n", "\r\n\r\n",
		"Content-Length: 99999999999999999999\r\n\r\n",
		"Content-Length: 1\r\nA:" + strings.Repeat(" ", maxHeader-len("Content-Length: 1\r\nA:")) + "\r\n\r\n1"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 1 << 16
		whole, end := readAll(bytes.NewReader(in), limit)
		single, singleEnd := readAll(iotest.OneByteReader(bytes.NewReader(in)), limit)
		if !equal(whole, single) || end.Error() != singleEnd.Error() {
			t.Fatalf("whole: %q %v; byte by byte: %q %v", whole, end, single, singleEnd)
		}
		var again []byte
		for _, body := range whole {
			again = append(again, framed(body)...)
		}
		second, err := readAll(bytes.NewReader(again), limit)
		if !equal(whole, second) || !errors.Is(err, ErrPeerClosed) {
			t.Fatalf("read %q, and again %q, %v", whole, second, err)
		}
	})
}
