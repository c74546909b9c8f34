package recorded

import "github.com/copilot-grpc/copilot-grpc/internal/testing/sim"

// scenario is a session: the plans of its prompts, the replies of the model to its requests in their order (see rule), and what
// the client does.
type scenario struct {
	name    string
	plans   []sim.Plan
	replies string
	play    func(r *recorder)
}

// calls is a plan with a step that calls tools.
func calls(kinds string) []sim.Plan { return []sim.Plan{{Steps: 1, Calls: kinds}, {}, {}} }

// plain are plans without tools.
var plain = []sim.Plan{{}, {}, {}}

var scenarios = []scenario{
	{"a turn", plain, "A0", func(r *recorder) {
		r.create()
		r.turn(0)
		r.call("session.getMessages", object{})
	}},
	{"tools", calls("spq"), "spq A0", func(r *recorder) {
		r.create()
		r.send(0)
		r.permit(r.permission(), "approve-once")
		first, second := r.tool(), r.tool()
		r.list()
		r.result(second)
		r.answer(r.await("userInput.request"))
		r.result(first)
		r.result(first) // twice
		r.await("session.idle")
		r.call("session.getMessages", object{})
	}},
	{"refused", calls("pp"), "pp A0", func(r *recorder) {
		r.create()
		r.send(0)
		first, second := r.permission(), r.permission()
		r.permit(first, "user-not-available")
		r.permit(second, "approve-once")
		r.result(r.tool())
		r.await("session.idle")
	}},
	{"refused with a word", calls("p"), "p A0", func(r *recorder) {
		r.create()
		r.send(0)
		r.call("session.permissions.handlePendingPermissionRequest", object{
			"requestId": r.permission(), "result": object{"kind": "reject", "feedback": "no"},
		})
		r.await("session.idle")
	}},
	{"refused without a word", calls("pp"), "pp A1 A2", func(r *recorder) {
		r.create()
		r.send(0)
		first, second := r.permission(), r.permission()
		r.await(r.send(1))
		r.permit(first, "reject")
		r.permit(second, "approve-once")
		r.result(r.tool())
		r.await("session.idle")
		r.call("session.getMessages", object{})
	}},
	{"kill and refuse", calls("p"), "p C", func(r *recorder) {
		r.create()
		r.send(0)
		permission := r.permission()
		r.written(`"permission.requested"`)
		r.again(sim.Killed, true)
		r.permit(permission, "reject")
		r.await("session.idle")
	}},
	{"another configuration", calls("s"), "s A0", func(r *recorder) {
		r.create()
		r.send(0)
		id := r.tool()
		r.resume(false)
		r.result(id)
		r.await("session.idle")
		r.resume(false)
	}},
	{"steering", calls("s"), "s A0", func(r *recorder) {
		r.create()
		r.send(0)
		id := r.tool()
		r.steer(1)
		r.steer(2)
		r.result(id)
		r.await("session.idle")
	}},
	{"steering late", plain, "~A0 A1 A2", func(r *recorder) {
		r.create()
		r.send(0)
		r.held(0)
		r.send(2)
		r.steer(1)
		r.release(0)
		r.await("session.idle")
	}},
	{"queue", plain, "~A0 A1 A2", func(r *recorder) {
		r.create()
		r.send(0)
		r.held(0)
		r.await(r.send(1))
		r.await(r.send(2))
		r.release(0)
		r.await("session.idle")
	}},
	{"several", plain, "A0 A1", func(r *recorder) {
		r.create()
		r.begin("session.sendMessages", object{"messages": []object{{"prompt": "P0"}, {"prompt": "P0.1"}}})
		r.await("session.idle")
		r.turn(1)
	}},
	{"at the end of a turn", plain, "A0 A1 A2", func(r *recorder) {
		r.create()
		r.send(0)
		r.await("assistant.turn_end")
		r.send(1)
		r.await("assistant.idle")
		r.send(2)
		for range 3 {
			r.await("user.message")
		}
		r.await("session.idle")
	}},
	{"remove", plain, "~A0 A1", func(r *recorder) {
		r.create()
		r.send(0)
		r.held(0)
		r.await(r.send(1))
		r.await(r.send(2))
		r.call("session.queue.removeMostRecent", object{})
		r.release(0)
		r.await("session.idle")
		r.call("session.queue.removeMostRecent", object{})
	}},
	{"error", []sim.Plan{{Fails: true}, {}, {}}, "~! A1 A2", func(r *recorder) {
		r.create()
		r.send(0)
		r.held(0)
		r.send(1)
		r.release(0)
		r.await("session.idle")
		r.turn(2)
	}},
	{"error alone", []sim.Plan{{Fails: true}, {}, {}}, "! A1", func(r *recorder) {
		r.create()
		r.turn(0)
		r.turn(1)
	}},
	{"abort of the model", plain, "~A0 A2", func(r *recorder) {
		r.create()
		r.abort() // of nothing
		r.send(0)
		r.held(0)
		r.await(r.send(1))
		r.steer(1)
		r.abort()
		r.await("session.idle")
		r.turn(2)
		r.call("session.getMessages", object{})
	}},
	{"abort of tools", calls("spp"), "spp A1", func(r *recorder) {
		r.create()
		r.send(0)
		tool, first, second := r.tool(), r.permission(), r.permission()
		r.permit(first, "approve-once")
		r.tool()
		r.begin("session.abort", object{})
		r.permit(second, "approve-once")
		r.result(tool)
		r.await("session.idle")
		r.turn(1)
		r.call("session.getMessages", object{})
	}},
	{"abort of a question", calls("qs"), "qs A1", func(r *recorder) {
		r.create()
		r.send(0)
		m := r.await("userInput.request")
		r.tool()
		r.abort()
		r.await("session.idle")
		r.answer(m)
		r.turn(1)
	}},
	{"abort at the end", plain, "A0 A1 A2", func(r *recorder) {
		r.create()
		r.send(0)
		r.await("assistant.turn_end")
		r.begin("session.abort", object{})
		r.await("session.idle")
		r.turn(1)
		r.send(2)
		r.abort()
	}},
	{"rewind", plain, "A0 A1 ~A2", func(r *recorder) {
		r.create()
		r.turn(0)
		second := r.turn(1)
		r.call("session.history.rewind", object{"eventId": second, "mode": "conversation"})
		r.call("session.history.rewind", object{"eventId": second, "mode": "conversation"})
		r.call("session.getMessages", object{})
		r.send(2)
		third := r.await("user.message").Params.Event.ID
		r.held(2)
		r.call("session.history.rewind", object{"eventId": third, "mode": "conversation"})
		r.release(2)
		r.await("session.idle")
		r.call("session.history.truncate", object{"eventId": third})
		r.call("session.history.truncate", object{"eventId": third})
		r.again(sim.Killed, false)
	}},
	{"truncate a turn", plain, "A0 ~A1 A2", func(r *recorder) {
		r.create()
		r.turn(0)
		r.send(1)
		second := r.await("user.message").Params.Event.ID
		r.held(1)
		r.call("session.history.truncate", object{"eventId": second})
		r.release(1)
		r.await("session.idle")
		r.call("session.getMessages", object{})
		r.turn(2)
	}},
	{"destroy", plain, "A0 A1", func(r *recorder) {
		r.create()
		r.turn(0)
		r.call("session.destroy", object{})
		r.call("session.send", object{"prompt": "P1"})
		r.call("session.destroy", object{})
		r.resume(false)
		r.turn(1)
		r.resume(false) // which it has
	}},
	{"destroy amid tools", calls("sp"), "sp C", func(r *recorder) {
		r.create()
		r.send(0)
		tool, permission := r.tool(), r.permission()
		r.await(r.send(1))
		r.call("session.destroy", object{})
		r.resume(true)
		r.list()
		r.result(tool)
		r.permit(permission, "approve-once")
		r.result(r.tool())
		r.await("session.idle")
		r.call("session.getMessages", object{})
	}},
	{"shutdown", plain, "~A0 A1", func(r *recorder) {
		r.create()
		r.send(0)
		r.held(0)
		r.call("session.shutdown", object{})
		r.call("session.send", object{"prompt": "P1"})
		r.call("session.destroy", object{})
		r.resume(false)
	}},
	{"kill amid tools", calls("spp"), "spp C A1", func(r *recorder) {
		r.create()
		r.send(0)
		tool, first, second := r.tool(), r.permission(), r.permission()
		r.permit(first, "reject")
		r.written(`"permission.completed"`)
		r.again(sim.Killed, true)
		r.list()
		r.permit(second, "approve-once")
		r.result(r.tool())
		r.result(tool)
		r.await("session.idle")
		r.turn(1)
		r.call("session.getMessages", object{})
	}},
	{"kill and go on later", calls("sp"), "sp A1", func(r *recorder) {
		r.create()
		r.send(0)
		tool := r.tool()
		r.permission()
		r.written(`"permission.requested"`)
		r.again(sim.Killed, false)
		r.result(tool)
		r.turn(1)
		r.call("session.getMessages", object{})
	}},
	{"kill and abort", calls("sp"), "sp A1", func(r *recorder) {
		r.create()
		r.send(0)
		r.tool()
		r.permission()
		r.written(`"permission.requested"`)
		r.again(sim.Killed, true)
		r.abort()
		r.await("session.idle")
		r.turn(1)
		r.call("session.getMessages", object{})
	}},
	{"kill amid the model", plain, "A0 ~A1 A2", func(r *recorder) {
		r.create()
		r.turn(0)
		r.send(1)
		r.held(1)
		r.written(`"content":"P1"`)
		r.again(sim.Killed, true)
		r.turn(2)
		r.call("session.getMessages", object{})
	}},
	{"kill without a message", plain, "", func(r *recorder) {
		r.create()
		r.end(sim.Killed)
		r.start()
		r.call("session.resume", r.config(nil))
	}},
	{"end of the input", calls("s"), "s", func(r *recorder) {
		r.create()
		r.send(0)
		r.tool()
		r.again(sim.Closed, true)
		r.list()
	}},
	{"delete", plain, "A0 ~A1", func(r *recorder) {
		r.create()
		r.turn(0)
		r.send(1)
		r.held(1)
		r.call("session.delete", object{})
		r.call("session.delete", object{})
		r.call("session.resume", r.config(nil))
		r.call("session.send", object{"prompt": "P2"})
	}},
}
