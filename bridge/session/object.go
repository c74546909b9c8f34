package session

import "github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"

// Object is a JSON object whose members keep their order.
type Object = jsonobj.Object

// ParseObject is jsonobj.Parse.
func ParseObject(b []byte) (Object, error) { return jsonobj.Parse(b) }
