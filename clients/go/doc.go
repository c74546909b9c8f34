// Package copilot is the Go client of copilot-grpc: sessions of the GitHub Copilot CLI,
// with their events, custom tools and permission requests, over gRPC.
//
//	c, err := copilot.Dial(ctx, "unix:///run/copilot-grpc.sock")
//	…
//	defer c.Close()
//
//	type args struct {
//		City string `json:"city" jsonschema:"the city to look up"`
//	}
//	weather := copilot.NewTool("weather", "Tells the weather in a city",
//		func(ctx context.Context, a args) (string, error) { return "sunny in " + a.City, nil })
//
//	s, err := c.CreateSession(ctx, copilot.SessionOptions{
//		Tools:        []copilot.Tool{weather},
//		OnPermission: copilot.ApproveAll,
//	})
//	…
//	defer s.Close()
//
//	out, err := s.SendAndWait(ctx, "Do I need an umbrella in Oslo?")
//
// # Sessions
//
// [Client.CreateSession], [Client.ResumeSession] and [Client.JoinSession] make the
// caller a participant of a session: they open the Attach stream, on which callbacks
// (tool calls, permission requests and the rest) arrive and are answered. The stream
// carries no events, so nothing that a program does with events can hold up a callback.
// [Client.Session] gives a handle on a session without taking part in it.
//
// # Callbacks
//
// What the agent asks is answered by functions of [SessionOptions]: OnPermission,
// OnUserInput, OnHooks and the like for what most programs need, and [Handle] for every
// other kind, by the types of its request and answer:
//
//	copilot.Handle(func(ctx context.Context, r *cliv1.CallbackCanvasServiceOpenRequest) (
//		*cliv1.CallbackCanvasServiceOpenResponse, error) { … })
//
// # Events
//
// [Session.Events] opens a stream of its own and yields events as they are read. The
// client queues none: a loop that is slow, or stands still, is held back by HTTP/2 flow
// control, and the server's journal is the buffer. Nothing else waits for it.
//
// # Broken connections
//
// Streams that break are opened again, with backoff: the Attach stream with the
// participant's token, an event stream after the last position it came to. Handlers
// keep running meanwhile, and each runs once: an answer whose arrival is in doubt is
// sent again, and not worked out again. Calls that are idempotent by their request id
// are repeated with the same one. See [WithReconnect].
//
// # Errors
//
// Everything the server refuses is an [*Error]; [IsReason] asks for its cause. The
// generated clients that [Client.Sessions] and its like return give gRPC statuses:
// [FromError] turns one into an [*Error].
package copilot
