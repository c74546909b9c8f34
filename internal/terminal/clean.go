// Package terminal prepares text of others for a terminal: nothing in it is obeyed, and it fits the width.
//
// Tool output, titles and answers of a model can contain escape sequences, which move the cursor or change the title of
// the window, and bidirectional marks, which show a command in another order than it runs in. Clean makes such
// characters visible instead of removing them, so that a person sees what was there.
package terminal

import (
	"fmt"
	"strings"
	"unicode"
)

// Clean makes characters visible that a terminal obeys or does not show. Line feeds and tabs stay; a carriage return
// before a line feed is dropped.
func Clean(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\r\n", "\n")
	if strings.IndexFunc(text, isObeyed) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if isObeyed(r) {
			b.WriteString(picture(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// CleanLine is Clean on one line: white space of any kind becomes a space.
func CleanLine(text string) string { return Clean(strings.Join(strings.Fields(text), " ")) }

// CleanJSON writes such characters in JSON text as escapes, which leaves its value unchanged.
func CleanJSON(text string) string {
	if strings.IndexFunc(text, isObeyed) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !isObeyed(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// isObeyed reports whether a character does something in a terminal or is invisible there: control characters, marks
// of direction, and other format characters but the two joiners, which scripts and emoji need.
func isObeyed(r rune) bool {
	switch r {
	case '\n', '\t', '\u200C', '\u200D':
		return false
	case '\u2028', '\u2029', '\u115F', '\u1160', '\u3164', '\uFFA0': // separators, and letters without a glyph
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co)
}

// picture is how a character is shown: control characters by their symbols, others by their numbers.
func picture(r rune) string {
	const symbols = 0x2400
	switch {
	case r < 0x20:
		return string(symbols + r)
	case r == 0x7F:
		return "\u2421"
	}
	return fmt.Sprintf("<U+%04X>", r)
}
