package translate

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

func TestNamesSurviveCollisions(t *testing.T) {
	t.Parallel()
	// Same length, same first and last eight bytes: one hash for all.
	table := newNames(50)
	for i := range 50 {
		if !table.add(fmt.Sprintf("sameHead%02dsameTail", i), int32(i)) {
			t.Fatalf("name %d is taken", i)
		}
	}
	for i := range 50 {
		if got := table.find(fmt.Appendf(nil, "sameHead%02dsameTail", i)); got != int32(i) {
			t.Errorf("find(%d) = %d", i, got)
		}
	}
	if table.find([]byte("sameHead50sameTail")) != -1 || table.find(nil) != -1 {
		t.Error("found what is not there")
	}
	if table.add("sameHead00sameTail", 1) {
		t.Error("a name can be added twice")
	}
	var none names
	if none.find([]byte("x")) != -1 {
		t.Error("found a name in the empty set")
	}
}

// TestNumbersAgainstBig compares with arbitrary precision.
func TestNumbersAgainstBig(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		text := randomNumber(r)
		want, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("big.Rat refuses %q", text)
		}
		i, ok := parseInt([]byte(text))
		if fits := want.IsInt() && want.Num().IsInt64(); ok != fits || fits && want.Num().Int64() != i {
			t.Errorf("parseInt(%q) = %d, %v", text, i, ok)
		}
		f, ok := parseFloat([]byte(text))
		if ok {
			back, _ := new(big.Rat).SetString(string(appendFloat(nil, f)))
			if back.Cmp(want) != 0 {
				t.Errorf("parseFloat(%q) = %v", text, f)
			}
			continue
		}
		nearest, _ := strconv.ParseFloat(text, 64)
		shortest, _ := new(big.Rat).SetString(strconv.FormatFloat(nearest, 'e', -1, 64))
		if shortest != nil && shortest.Cmp(want) == 0 {
			t.Errorf("parseFloat(%q) refuses", text)
		}
	}
}

func randomNumber(r *rand.Rand) string {
	s := ""
	if r.IntN(2) == 0 {
		s = "-"
	}
	s += strconv.FormatUint(r.Uint64()>>r.IntN(64), 10)
	if r.IntN(2) == 0 {
		s += "." + fmt.Sprintf("%0*d", 1+r.IntN(6), r.IntN(1000)*r.IntN(2))
	}
	if r.IntN(3) == 0 {
		s += "e" + strconv.Itoa(r.IntN(50)-25)
	}
	return s
}

func TestExtremeNumbers(t *testing.T) {
	t.Parallel()
	for text, fits := range map[string]bool{
		"1e308": true, "1.7976931348623157e308": true, "1.7976931348623159e308": false, "1e309": false,
		"5e-324": true, "4e-324": false, "1e-400": false, "0e999999999999999999999999": true,
		"1e999999999999999999999999":  false,
		"1e-999999999999999999999999": false, "-0": true, "-0.0e-5": true, "100000000000000000000000": true,
		"123456789012345678901234": false,
	} {
		if f, ok := parseFloat([]byte(text)); ok != fits {
			t.Errorf("parseFloat(%q) = %v, %v", text, f, ok)
		}
	}
	if f, _ := parseFloat([]byte("-0.0")); !math.Signbit(f) || string(appendFloat(nil, f)) != "-0" {
		t.Errorf("negative zero became %q", appendFloat(nil, f))
	}
}

// TestTimestampsAgainstTime walks the whole range and compares with package
// time.
func TestTimestampsAgainstTime(t *testing.T) {
	t.Parallel()
	const step = 86400*13 + 12345
	for s := int64(minSeconds); s <= maxSeconds; s += step {
		nanos := (s%7 + 7) % 7 * 123_450_000
		want := time.Unix(s, nanos).UTC().Format("2006-01-02T15:04:05.000Z")
		if nanos%1_000_000 != 0 {
			want = time.Unix(s, nanos).UTC().Format(time.RFC3339Nano)
		}
		got, ok := appendTimestamp(nil, s, nanos)
		if !ok || string(got) != `"`+want+`"` {
			t.Fatalf("appendTimestamp(%d, %d) = %s, want %s", s, nanos, got, want)
		}
		if bs, bn, ok := parseTimestamp([]byte(want)); !ok || bs != s || int64(bn) != nanos {
			t.Fatalf("parseTimestamp(%s) = %d, %d, %v", want, bs, bn, ok)
		}
	}
	for _, s := range []int64{minSeconds - 1, maxSeconds + 1, math.MinInt64, math.MaxInt64} {
		if got, ok := appendTimestamp(nil, s, 0); ok {
			t.Errorf("appendTimestamp(%d) = %s", s, got)
		}
	}
}

// TestLengthPrefixes moves content of sizes around every boundary, guessed too
// high and too low.
func TestLengthPrefixes(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 127, 128, 129, 16383, 16384, 16385, 2097151, 2097152} {
		for _, rest := range []int{0, 200, 20000, 3000000} {
			e := encoder{src: make([]byte, rest), dst: []byte("x")}
			content, width := e.open()
			for i := range size {
				e.dst = append(e.dst, byte(i*7))
			}
			e.close(content, width)
			n, at := varint(e.dst, 1)
			if int(n) != size || len(e.dst) != at+size {
				t.Fatalf("size %d, rest %d: prefix %d, length %d", size, rest, n, len(e.dst))
			}
			for i := range size {
				if e.dst[at+i] != byte(i*7) {
					t.Fatalf("size %d, rest %d: byte %d was lost", size, rest, i)
				}
			}
		}
	}
}
