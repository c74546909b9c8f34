// Package chat is a conversation with a session at a terminal.
//
// Conversation is the state: the view of the session, which clients/go/view computes from its frames, and what this
// person has done. It is a pure value: input goes in, effects come out, and it knows no terminal, clock or connection.
// Screen draws it on a terminal, Plain writes it as lines for pipes and screen readers, and Link carries its effects
// out over the Go library.
//
// All texts of a session are shown through package terminal: nothing in them is obeyed.
package chat
