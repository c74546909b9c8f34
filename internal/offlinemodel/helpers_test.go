package offlinemodel

import (
	"context"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// start runs a server for the length of a test.
func start(t *testing.T, opts Options) *Server {
	t.Helper()
	server, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return server
}

// scoped opens a scope named after the test.
func scoped(t *testing.T, server *Server, script *Script) *Scope {
	t.Helper()
	scope, err := server.NewScope(t.Name(), script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(scope.Close)
	return scope
}

// lookup reads a member of a JSON value by a path such as choices.0.delta.
func lookup(value any, path string) any {
	for key := range strings.SplitSeq(path, ".") {
		switch container := value.(type) {
		case map[string]any:
			value = container[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(container) {
				return nil
			}
			value = container[i]
		default:
			return nil
		}
	}
	return value
}

// yamlKeys are all keys of the script format.
func yamlKeys() []string {
	seen := map[reflect.Type]bool{}
	var keys []string
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			keys = append(keys, typ.Field(i).Tag.Get("yaml"))
			visit(typ.Field(i).Type)
		}
	}
	visit(reflect.TypeFor[Script]())
	return keys
}
