package translate

import (
	"math"
	"strconv"
)

// decimal is a JSON number taken apart without loss: its value is the n
// significant digits of mantissa, read as an integer, times ten to the exp.
type decimal struct {
	mantissa []byte // digits and at most one point; from the first to the last non-zero digit
	n        int    // significant digits; 0 for zero
	exp      int
	negative bool
}

// maxExponent bounds the exponents that are distinguished. It is far beyond the exponents of float64 and int64.
const maxExponent = 1 << 40

// parseDecimal takes a well-formed JSON number apart.
func parseDecimal(text []byte) decimal {
	var d decimal
	if text[0] == '-' {
		d.negative = true
		text = text[1:]
	}
	end, point := 0, -1
	for ; end < len(text) && text[end]|0x20 != 'e'; end++ {
		if text[end] == '.' {
			point = end
		}
	}
	if end < len(text) {
		d.exp = parseExponent(text[end+1:])
	}
	if point < 0 {
		point = end
	}
	first, last := -1, -1
	for i, c := range text[:end] {
		if c != '0' && c != '.' {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		d.exp = 0
		return d
	}
	d.mantissa = text[first : last+1]
	d.n = len(d.mantissa)
	if first < point && point < last {
		d.n--
	}
	if last < point {
		d.exp += point - last - 1
	} else {
		d.exp -= last - point
	}
	return d
}

func parseExponent(text []byte) int {
	negative := text[0] == '-'
	if text[0] == '-' || text[0] == '+' {
		text = text[1:]
	}
	exp := 0
	for _, c := range text {
		exp = min(exp*10+int(c-'0'), maxExponent)
	}
	if negative {
		return -exp
	}
	return exp
}

func (d decimal) equal(o decimal) bool {
	if d.n != o.n || d.exp != o.exp {
		return false
	}
	if d.n == 0 {
		return true
	}
	if d.negative != o.negative {
		return false
	}
	i, j := 0, 0
	for range d.n {
		if d.mantissa[i] == '.' {
			i++
		}
		if o.mantissa[j] == '.' {
			j++
		}
		if d.mantissa[i] != o.mantissa[j] {
			return false
		}
		i++
		j++
	}
	return true
}

// uint returns the significant digits as an integer; there are at most 19.
func (d decimal) uint() uint64 {
	var u uint64
	for _, c := range d.mantissa {
		if c != '.' {
			u = u*10 + uint64(c-'0')
		}
	}
	return u
}

// equalNumbers compares two well-formed JSON numbers by exact value.
func equalNumbers(a, b []byte) bool {
	return parseDecimal(a).equal(parseDecimal(b))
}

// parseInt returns the int64 that a well-formed JSON number stands for, and
// false when there is none. It reads 1.0 and 1e3 as integers.
func parseInt(text []byte) (int64, bool) {
	if v, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return v, true
	}
	d := parseDecimal(text)
	if d.n == 0 {
		return 0, true
	}
	if d.exp < 0 || d.n+d.exp > 19 {
		return 0, false
	}
	u := d.uint()
	for range d.exp {
		u *= 10 // below 1e19, which a uint64 holds
	}
	switch {
	case u <= math.MaxInt64 && d.negative:
		return -int64(u), true
	case u <= math.MaxInt64:
		return int64(u), true
	case u == 1<<63 && d.negative:
		return math.MinInt64, true
	}
	return 0, false
}

// parseFloat returns the float64 of a well-formed JSON number, and false when
// writing that float64 again would give a number of another value.
func parseFloat(text []byte) (float64, bool) {
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return 0, false
	}
	d := parseDecimal(text)
	if d.n <= 15 && -22 <= d.exp && d.exp <= 22 {
		return f, true // any decimal of up to 15 digits survives a float64 in this range
	}
	var buf [32]byte
	return f, parseDecimal(strconv.AppendFloat(buf[:0], f, 'e', -1, 64)).equal(d)
}

// appendFloat appends a finite float64 as the shortest JSON number of its
// value, in the form ECMAScript gives it.
func appendFloat(dst []byte, f float64) []byte {
	if i := int64(f); float64(i) == f && -1<<53 < i && i < 1<<53 && (i != 0 || !math.Signbit(f)) {
		return strconv.AppendInt(dst, i, 10)
	}
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64)
}
