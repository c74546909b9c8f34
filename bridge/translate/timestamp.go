package translate

import "strconv"

// The range of google.protobuf.Timestamp: the years 1 to 9999.
const (
	minSeconds = -62135596800
	maxSeconds = 253402300799
)

// parseTimestamp reads the one form of a date-time that appendTimestamp writes.
// Any other form, however valid, is refused: it could not be written back.
func parseTimestamp(s []byte) (seconds int64, nanos int32, ok bool) {
	// 2006-01-02T15:04:05.000Z
	if len(s) < 24 || len(s) > 30 || s[4] != '-' || s[7] != '-' || s[10] != 'T' ||
		s[13] != ':' || s[16] != ':' || s[19] != '.' || s[len(s)-1] != 'Z' {
		return 0, 0, false
	}
	century, year := pair(s, 0), pair(s, 2)
	month, day := pair(s, 5), pair(s, 8)
	hour, minute, second := pair(s, 11), pair(s, 14), pair(s, 17)
	fraction, ok := digits(s[20 : len(s)-1])
	if century|year|month|day|hour|minute|second < 0 || !ok {
		return 0, 0, false
	}
	year += century * 100
	if year < 1 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) ||
		hour > 23 || minute > 59 || second > 59 {
		return 0, 0, false
	}
	n := len(s) - 21
	if n > 3 && s[len(s)-2] == '0' {
		return 0, 0, false // zeros are trimmed beyond the milliseconds
	}
	for range 9 - n {
		fraction *= 10
	}
	days := daysFromCivil(year, month, day)
	return int64(days)*86400 + int64(hour*3600+minute*60+second), int32(fraction), true
}

// pair reads two digits; the result is negative when they are none.
func pair(s []byte, i int) int {
	a, b := s[i]-'0', s[i+1]-'0'
	if a > 9 || b > 9 {
		return -1
	}
	return int(a)*10 + int(b)
}

func digits(s []byte) (int, bool) {
	v := 0
	for _, c := range s {
		if c -= '0'; c > 9 {
			return 0, false
		}
		v = v*10 + int(c)
	}
	return v, true
}

func daysIn(year, month int) int {
	if month == 2 {
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 30 + (month+month>>3)&1
}

// daysFromCivil counts days since 1970-01-01; years begin in March, so that the
// leap day comes last.
func daysFromCivil(year, month, day int) int {
	if month <= 2 {
		year--
		month += 12
	}
	era := year / 400
	yoe := year - era*400
	doy := (153*(month-3)+2)/5 + day - 1
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return era*146097 + doe - 719468
}

// civilFromDays is the inverse of daysFromCivil.
func civilFromDays(days int) (year, month, day int) {
	z := days + 719468
	era := z / 146097
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day = doy - (153*mp+2)/5 + 1
	month = mp + 3
	year = yoe + era*400
	if month > 12 {
		month -= 12
		year++
	}
	return year, month, day
}

// appendTimestamp appends a date-time in quotes: milliseconds, or up to nine
// digits without trailing zeros where milliseconds do not suffice. It reports
// false for a value outside the range of google.protobuf.Timestamp.
func appendTimestamp(dst []byte, seconds int64, nanos int64) ([]byte, bool) {
	if seconds < minSeconds || seconds > maxSeconds || nanos < 0 || nanos > 999_999_999 {
		return dst, false
	}
	rel := seconds - minSeconds // not negative, so that / and % go the right way
	days, rest := int(rel/86400)+minSeconds/86400, int(rel%86400)
	year, month, day := civilFromDays(days)
	dst = append(dst, '"', byte('0'+year/1000), byte('0'+year/100%10))
	dst = appendPair(dst, year%100, '-')
	dst = appendPair(dst, month, '-')
	dst = appendPair(dst, day, 'T')
	dst = appendPair(dst, rest/3600, ':')
	dst = appendPair(dst, rest/60%60, ':')
	dst = appendPair(dst, rest%60, '.')
	if nanos%1_000_000 == 0 {
		ms := int(nanos / 1_000_000)
		return append(dst, byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z', '"'), true
	}
	n := len(dst)
	dst = strconv.AppendInt(dst, 1_000_000_000+nanos, 10)
	copy(dst[n:], dst[n+1:]) // drop the leading 1
	dst = dst[:len(dst)-1]
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, 'Z', '"'), true
}

func appendPair(dst []byte, v int, sep byte) []byte {
	return append(dst, byte('0'+v/10), byte('0'+v%10), sep)
}
