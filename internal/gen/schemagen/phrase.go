package schemagen

import (
	"slices"
	"strings"
)

// spelled are words of names that read better written otherwise.
var spelled = map[string]string{
	"id": "identifier", "ids": "identifiers", "url": "URL", "urls": "URLs", "uri": "URI", "mcp": "MCP",
	"json": "JSON", "api": "API", "cwd": "working directory", "llm": "model", "github": "GitHub",
	"oauth": "OAuth", "html": "HTML", "ui": "UI", "sdk": "SDK", "ttft": "time to first token", "sql": "SQL",
	"lsp": "LSP", "http": "HTTP", "mime": "MIME", "pr": "pull request", "byok": "BYOK", "sha": "SHA",
	"ai": "AI", "os": "operating system", "cli": "CLI", "ms": "milliseconds", "env": "environment",
	"args": "arguments", "repo": "repository", "repos": "repositories", "dir": "directory", "dirs": "directories",
	"config": "configuration", "auth": "authentication", "params": "parameters", "max": "largest", "min": "smallest",
	"fs": "file system", "gh": "gh", "ttl": "time to live", "ip": "IP", "vm": "VM", "tls": "TLS", "capi": "CAPI",
}

func spell(words []string) string {
	out := make([]string, 0, len(words))
	for _, w := range words {
		if s, ok := spelled[w]; ok {
			w = s
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}

func capitalise(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// nounPhrase reads a name as a noun.
func nounPhrase(name string) string {
	return capitalise(spell(strings.Split(snake(name), "_"))) + "."
}

// methodVerbs are the first words of methods that can be read as what they do.
var methodVerbs = strings.Fields(`abort accept activate add append apply approve archive begin build cancel check
	clear close compact complete compute configure confirm connect consume convert copy create deactivate delete
	deny deregister detach disable disconnect discover dispatch edit elicit enable ensure enqueue evaluate execute
	export fetch find finish flush fork get handle import init initialize insert inspect install interrupt invoke
	kill launch list load lock log logout lookup mark merge migrate modify move notify open pause perform persist
	ping plan poll predict prepare preview process prompt provide prune publish query read rebuild reconcile record
	recompute refresh register reject release reload remove rename render replace report request reset resolve
	respond restart restore resume retry return revert revoke rewind run save search select send set shutdown sign
	start stat stop submit subscribe summarize suspend switch sync take test toggle transform truncate trust
	unarchive uninstall unlock unregister unsubscribe update upload upsert validate verify wait watch withdraw write`)

var prepositions = strings.Fields("to with for at from by if in into of on as")

// methodPhrase reads a JSON-RPC method as what it does: the first word of its
// last part is a verb, what it is done to follows or is the namespace.
func methodPhrase(method string) string {
	segs := strings.Split(method, ".")
	words := strings.Split(snake(segs[len(segs)-1]), "_")
	if !slices.Contains(methodVerbs, words[0]) {
		return ""
	}
	verb, rest := capitalise(thirdPerson(words[0])), words[1:]
	if len(rest) == 0 && len(segs) > 1 {
		rest = strings.Split(snake(segs[len(segs)-2]), "_")
	}
	switch {
	case len(rest) == 0:
		return verb + "."
	case slices.Contains(prepositions, rest[0]):
		return verb + " " + spell(rest) + "."
	}
	return verb + " the " + spell(rest) + "."
}

func thirdPerson(verb string) string {
	switch {
	case strings.HasSuffix(verb, "s"), strings.HasSuffix(verb, "sh"), strings.HasSuffix(verb, "ch"), strings.HasSuffix(verb, "x"):
		return verb + "es"
	case strings.HasSuffix(verb, "y") && !strings.ContainsAny(verb[max(0, len(verb)-2):len(verb)-1], "aeiou"):
		return verb[:len(verb)-1] + "ies"
	}
	return verb + "s"
}

// suffixPhrases read fields by the last word of their name.
var suffixPhrases = map[string]string{
	"id": "Identifier of the %.", "ids": "Identifiers of the %.", "name": "Name of the %.", "names": "Names of the %.",
	"path": "Path of the %.", "paths": "Paths of the %.", "url": "URL of the %.", "urls": "URLs of the %.",
	"type": "Kind of %.", "kind": "Kind of %.", "version": "Version of the %.", "index": "Index of the %.",
	"title": "Title of the %.", "description": "Description of the %.", "text": "Text of the %.",
	"status": "Status of the %.", "size": "Size of the %.", "reason": "Reason for the %.", "label": "Label of the %.",
	"ms": "The %, in milliseconds.", "seconds": "The %, in seconds.", "bytes": "The %, in bytes.",
	"minutes": "The %, in minutes.", "percentage": "The %, in percent.",
}

// fieldPhrase makes a sentence of a field's name and type.
func fieldPhrase(f *Field, isEnum bool) string {
	words := strings.Split(strings.TrimSuffix(f.Name, "_json"), "_")
	last, rest := words[len(words)-1], words[:len(words)-1]
	switch {
	case f.Type == "bool" && !f.Repeated && !f.Map:
		return boolPhrase(words)
	case f.Type == timestampType && last == "at":
		return timePhrase(rest)
	case len(words) > 1 && (words[0] == "max" || words[0] == "min"):
		return limitPhrase(words)
	case f.Map:
		return "The " + spell(words) + ", by name."
	case len(rest) == 0:
		return capitalise("the "+spell(words)) + "."
	case last == "count":
		return "Number of " + plural(spell(rest)) + "."
	case last == "tokens" && (f.Type == "int64" || f.Type == "double"):
		return "Number of " + spell(words) + "."
	case isEnum && (last == "type" || last == "kind"):
		return "Kind of " + spell(rest) + "."
	}
	if n := len(words) - 2; n > 0 && words[n] == "display" && last == "name" {
		return "Name of the " + spell(words[:n]) + " to show to people."
	}
	if form, ok := suffixPhrases[last]; ok && !isAdjective(rest[len(rest)-1]) {
		return strings.ReplaceAll(form, "%", spell(rest))
	}
	return "The " + spell(words) + "."
}

// timePhrase reads a name that ends in "at", without that word.
func timePhrase(words []string) string {
	last := words[len(words)-1]
	switch {
	case len(words) == 1 && strings.HasSuffix(last, "ed"):
		return "When it was " + last + "."
	case len(words) == 1:
		return "When it " + last + "."
	case strings.HasSuffix(last, "ed"):
		return "When the " + spell(words[:len(words)-1]) + " was " + last + "."
	}
	return "When the " + spell(words) + "."
}

func limitPhrase(words []string) string {
	rest := spell(words[1:])
	if last := words[len(words)-1]; strings.HasSuffix(last, "s") && last != "ms" && last != "seconds" && last != "bytes" {
		rest = "number of " + rest
	}
	if words[0] == "max" {
		return "Largest " + rest + "."
	}
	return "Smallest " + rest + "."
}

// adjectives are words that a noun has to follow.
var adjectives = strings.Fields("possible full display new old previous next current original total effective default raw safe")

func isAdjective(word string) bool {
	return slices.Contains(adjectives, word) || strings.HasSuffix(word, "ed") || strings.HasSuffix(word, "able")
}

func plural(s string) string {
	switch {
	case strings.HasSuffix(s, "s"):
		return s
	case strings.HasSuffix(s, "y") && !strings.HasSuffix(s, "ey"):
		return s[:len(s)-1] + "ies"
	}
	return s + "s"
}

// boolVerbs are words that say, in front of a flag's name, what is done.
var boolVerbs = []string{
	"allow", "allows", "include", "exclude", "skip", "force", "keep", "require", "requires", "support", "supports",
	"ignore", "wait", "prepend", "append", "request", "override", "overrides", "show", "hide", "use", "uses",
	"needs", "offer", "offers", "persist", "preserve", "retry", "reset", "load", "reload", "run", "send", "start",
	"stop", "record", "resume", "validate", "apply", "return", "refresh", "clear", "reuse", "merge", "match",
	"defer", "arm", "notify", "expand", "open", "close", "create", "delete", "enforce", "fail", "follow", "inherit",
	"install", "prefer", "prompt", "remove", "replace", "save", "suppress", "sync", "trust", "try", "update", "drop",
}

// boolPhrase makes a sentence of a flag's name.
func boolPhrase(words []string) string {
	first, rest := words[0], spell(words[1:])
	switch first {
	case "is", "was", "has", "can", "should", "will", "did", "does":
		if rest != "" {
			return "Whether it " + first + " " + rest + "."
		}
	case "enable":
		return "Whether " + rest + isOrAre(words[len(words)-1]) + "switched on."
	case "disable":
		return "Whether " + rest + isOrAre(words[len(words)-1]) + "switched off."
	}
	last := words[len(words)-1]
	switch {
	case last == "enabled" || last == "disabled" || last == "allowed" || last == "required" || last == "supported":
		if len(words) > 1 {
			return "Whether " + spell(words[:len(words)-1]) + isOrAre(words[len(words)-2]) + last + "."
		}
		return "Whether it is " + last + "."
	case slices.Contains(boolVerbs, first) && strings.HasSuffix(first, "s"):
		return "Whether it " + spell(words) + "."
	case slices.Contains(boolVerbs, first):
		return "Whether to " + spell(words) + "."
	case len(words) > 1 && strings.HasSuffix(last, "ed") && first != "not":
		return "Whether the " + spell(words[:len(words)-1]) + isOrAre(words[len(words)-2]) + last + "."
	case strings.HasSuffix(last, "ed"), strings.HasSuffix(last, "able"), strings.HasSuffix(last, "ible"), strings.HasSuffix(last, "only"), strings.HasSuffix(last, "ing"):
		return "Whether it is " + spell(words) + "."
	}
	return "Whether there is " + spell(words) + "."
}

func isOrAre(noun string) string {
	if strings.HasSuffix(noun, "s") && !strings.HasSuffix(noun, "ss") {
		return " are "
	}
	return " is "
}
