package turn

import (
	"fmt"
	"testing"
)

// TestSeveralBehindATurn: the first of several messages of one call ends the turn before, whose message has its own answer, also
// if the ids are known only later.
func TestSeveralBehindATurn(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		d := newDriver()
		one := d.sent("m1")
		several := d.expect()
		d.m.Accept(several, d.now)
		identify := func() { d.carryOut(d.m.Identify(several, "m2", "m3")) }
		say := func(text, interaction string, ids ...string) {
			for _, id := range ids {
				d.play("user.message", "", fmt.Sprintf(`{"messageId":%q,"interactionId":%q}`, id, interaction))
			}
			d.play("assistant.turn_start", "", fmt.Sprintf(`{"turnId":"0","interactionId":%q}`, interaction))
			d.play("assistant.message", "", fmt.Sprintf(`{"content":%q}`, text))
			d.play("assistant.turn_end", "", `{"turnId":"0"}`)
		}
		if !late {
			identify()
		}
		say("one", "i1", "m1")
		say("several", "i2", "m2", "m3")
		if late {
			identify()
		}
		d.play("session.idle", "", `{}`)
		for w, want := range map[*Waiter]string{one: "one", several: "several"} {
			if !w.Over() || w.Outcome().Proto().GetText() != want {
				t.Errorf("ids are late: %v: the answer to %s is %v", late, want, w.Outcome().Proto())
			}
		}
		if d.ended != 2 {
			t.Errorf("ids are late: %v: %d turns have ended", late, d.ended)
		}
	}
}

// TestWaiting: a message waits until its turn has ended.
func TestWaiting(t *testing.T) {
	t.Parallel()
	d := newDriver()
	none := d.m.Waiting()
	d.sent("m1")
	one := d.m.Waiting()
	d.play("user.message", "", user("m1"))
	d.play("session.idle", "", `{}`)
	if none || !one || d.m.Waiting() {
		t.Errorf("before: %v, then: %v, behind: %v", none, one, d.m.Waiting())
	}
}
