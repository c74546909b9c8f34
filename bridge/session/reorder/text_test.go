package reorder

import "testing"

func TestTimestamp(t *testing.T) {
	t.Parallel()
	at := func(text string) int64 {
		return Timestamp([]byte(`{"data":{"timestamp":"x"},` + text + `,"parentId":null}`))
	}
	times := []string{"1999-12-31T23:59:59.999Z", "2000-01-01T00:00:00.000Z", "2026-11-30T23:59:59.999Z", "2026-12-01T00:00:00.000Z", "2026-12-01T00:00:00.001Z", "2026-12-01T01:02:03.004Z"}
	for i, now := range times {
		if got := at(`"timestamp":"` + now + `"`); got <= 0 || i > 0 && got <= at(`"timestamp":"`+times[i-1]+`"`) {
			t.Errorf("%s is %d", now, got)
		}
	}
	if got := at(`"timestamp":"`+times[5]+`"`) - at(`"timestamp":"`+times[4]+`"`); got != 3723003 {
		t.Errorf("%d ms between %s and %s", got, times[4], times[5])
	}
	const parent = `,"parentId":"00000000-0000-0000-0000-000000000000"}`
	for _, text := range []string{`{"timestamp":"` + times[4] + `","type":"x"` + parent, `{"type":"x","timestamp":"` + times[4] + `"` + parent} {
		if got := Timestamp([]byte(text)); got != at(`"timestamp":"`+times[4]+`"`) {
			t.Errorf("%s is %d", text, got)
		}
	}
	for _, bad := range []string{`"timestamp":"2026-11-21T03:04:56.272+00"`, `"timestamp":"2026-11-21T03:04:56Z"`, `"timestamp": "2026-11-21T03:04:56.272Z"`, `"timestamp":1`, `"time":"2026-11-21T03:04:56.272Z"`} {
		if got := at(bad); got != 0 {
			t.Errorf("%s is %d, want 0", bad, got)
		}
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{`"n":12}`: 12, `{"n":0}`: 0, `{"n":7`: 7, `{"m":7}`: 0, `{"n":"7"}`: 0, `{"n":99999999999999999999}`: 0} {
		if got := number([]byte(text), `"n":`); got != want {
			t.Errorf("%s has %d, want %d", text, got, want)
		}
	}
}
