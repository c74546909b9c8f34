// Package copilot is the Go client of copilot-grpc: sessions of the GitHub Copilot CLI,
// with their events, custom tools and permission requests, over gRPC.
//
//	c, err := copilot.Connect(ctx)
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
// [Connect] uses the server of this machine, or starts a private one; [Dial] connects to any
// other. Package copilottest starts servers with a scripted model for tests, package view
// computes the state of user interfaces, and package copilototel traces with OpenTelemetry.
//
// # Sessions
//
// [Client.CreateSession], [Client.ResumeSession] and [Client.JoinSession] make the
// caller a participant of a session: they open the Attach stream, on which callbacks
// (tool calls, permission requests and the rest) arrive and are answered. The stream
// carries no events, so nothing that a program does with events can hold up a callback.
// [Client.Session] returns a handle on a session without joining it.
//
// # Callbacks
//
// Functions in [SessionOptions] answer callbacks: OnPermission, OnUserInput, OnHooks and
// so on for each kind, and [Handle] with the messages of the API, selected by the types of its
// request and answer; OnRequest is for kinds that this package does not know. A handler runs in a goroutine of its own, in a context that ends with
// the callback; an error or a panic gives the callback's safe default:
//
//	copilot.Handle(func(ctx context.Context, r *cliv1.CallbackCanvasServiceOpenRequest) (
//		*cliv1.CallbackCanvasServiceOpenResponse, error) { … })
//
// # Events
//
// [Session.Events] opens a separate stream and yields events as they are read. The
// client queues none: HTTP/2 flow control slows the stream of a slow or stopped loop,
// and the server's journal is the buffer. No other stream waits for the loop.
//
// # Broken connections
//
// The client reopens broken streams with backoff: the Attach stream with the
// participant's token, an event stream after its last position. Handlers continue
// to run, and each runs once: if the arrival of an answer is uncertain, the client sends
// the same answer again. It repeats idempotent calls with the same request id. See
// [WithReconnect]. What cannot be hidden is a value: a [*GapError] in a sequence of events, and
// a [ConnectionChange] for [SessionOptions.OnConnection].
//
// # Errors
//
// Refusals of the server are [*Error] values; [IsReason] tests their reason. [ErrNoServer]
// and [*IncompatibleError] are errors of connecting, [*OutcomeError] is a failed turn. The
// generated clients of [Client.Sessions] and similar methods return gRPC statuses;
// [FromError] converts one to an [*Error].
package copilot
