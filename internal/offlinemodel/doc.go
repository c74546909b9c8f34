// Package offlinemodel is a local HTTP endpoint that plays a language model
// from a readable script.
//
// The Copilot CLI can talk to it in every form it knows: OpenAI chat
// completions, OpenAI responses, Azure OpenAI, Anthropic messages, and GitHub's
// own model API. No account, no key and no network beyond loopback are needed,
// which makes it useful in tests: the tests of this repository, and the tests
// that users write for their own agents.
//
// A [Script] is a list of rules. The first rule whose conditions hold answers a
// request. One [Server] can serve many scripts at once, each under a [Scope]
// with its own rules, gates and captured requests, so that tests run in
// parallel against one server.
//
// The script format is described in docs/offline-model.md.
package offlinemodel
