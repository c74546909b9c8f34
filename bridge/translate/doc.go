// Package translate turns JSON values of the Copilot CLI into protobuf wire
// bytes and back, in one pass, by tables compiled from message descriptors and
// the options of copilot.json.v1. It builds no intermediate message and, given
// room in the destination, allocates nothing.
//
// # Lossless translation
//
// Values that the typed fields of a message cannot hold go, as JSON text, into
// its json_extra field: members it does not declare, values of another type,
// unknown enum values, strings with an unpaired surrogate, numbers beyond int64 or
// float64, and date-times and base64 that would change on the way back. If one
// element of a list or map does not fit, the whole list or map goes there. Two
// names are reserved in json_extra: "$absent" lists required members that the
// input lacked, "$value" holds a whole value that is not an object (or an object
// that itself uses one of these two names). Unions and results that are not
// objects have an unrecognized field instead. With Exact, JSON → wire → JSON
// returns the same value for every JSON value. The order of members and the
// spelling of numbers and strings may change, except in fields that hold JSON
// text, which are copied byte for byte.
//
// # Rules
//
//   - When a member occurs twice the last one counts. The fast path assumes that
//     it does not happen; finding that it did, it starts over on a copy of the
//     input without the earlier ones.
//   - A required nullable member that is null leaves its field unset. A list or
//     map cannot be unset: null goes to json_extra there, and an empty one is [].
//   - A required field that is unset and has no zero value to write (an enum, a
//     message) is left out of the JSON; the receiver reports the error.
//   - Case of a union: by the discriminator; without one by the kind of the
//     value; among several object cases the one that misses the fewest required
//     members, then the one that leaves the fewest members over. Only the
//     object's own members count, not what is inside them.
//   - json_extra overrides typed fields. JSONOptions forbids that to callers.
package translate
