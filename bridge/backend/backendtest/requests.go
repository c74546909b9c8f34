package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// OpenRequests opens the log of requests and returns the stored ones. The tests close a log before they open it
// again.
type OpenRequests func() (backend.Requests, []backend.Request, error)

// Requests tests remembered requests. open returns a function that opens none the first time.
func Requests(t *testing.T, open func(testing.TB) OpenRequests) { runAll(t, requestChecks, open) }

var requestChecks = []check[OpenRequests]{
	{"a request is remembered", requestKept},
	{"a large answer is remembered", requestLarge},
	{"the latest record counts", requestLatest},
	{"an expired request is not remembered", requestExpires},
	{"a forgotten request is not remembered", requestForgotten},
	{"keys are independent", requestKeys},
}

func key(id string) backend.Key {
	return backend.Key{Tenant: "t", Operation: "Send\x00s", ID: id}
}

func answered(id string, expires time.Time) backend.Request {
	return backend.Request{
		Key: key(id), Sum: []byte("sum"), Expires: expires, Since: []byte("since"), Type: "T", Answer: []byte(id),
		Bytes: int64(len(id)),
	}
}

// after adds requests, closes them and returns what is remembered then.
func after(
	open OpenRequests, change func(backend.Requests), list ...backend.Request,
) (backend.Requests, []backend.Request, error) {
	r, old, err := open()
	if err != nil || len(old) > 0 {
		return nil, nil, fmt.Errorf("opening none: %d requests, %v", len(old), err)
	}
	for _, q := range list {
		if err := r.Add(q); err != nil {
			return nil, nil, fmt.Errorf("adding %q: %v", q.Key.ID, err)
		}
	}
	if change != nil {
		change(r)
	}
	if err := errors.Join(r.Compact(context.Background()), r.Close()); err != nil {
		return nil, nil, err
	}
	return open()
}

func soon() time.Time { return time.Now().Add(time.Hour).Truncate(time.Millisecond) }

// hasRequests checks which requests are remembered, by id.
func hasRequests(list []backend.Request, ids ...string) error {
	var got []string
	for _, q := range list {
		got = append(got, q.Key.ID)
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		return fmt.Errorf("the requests %q are remembered, not %q", got, ids)
	}
	return nil
}

func requestKept(t testing.TB, open func(testing.TB) OpenRequests) error {
	want, begun := answered("a", soon()), backend.Request{Key: key("b"), Expires: soon().Add(time.Minute),
		Since: []byte("x")}
	r, list, err := after(open(t), nil, begun, want)
	if err = errors.Join(err, hasRequests(list, "a", "b")); err != nil {
		return err
	}
	got := list[0]
	if got.Key != want.Key || !got.Expires.Equal(want.Expires) || got.Type != "T" || got.Bytes != 1 || got.Over ||
		string(got.Sum) != "sum" || string(got.Since) != "since" || string(got.Answer) != "a" {
		return fmt.Errorf("a request is remembered as %+v", got)
	}
	if got := list[1]; got.Type != "" || string(got.Since) != "x" {
		return fmt.Errorf("a request that was begun is remembered as %+v", got)
	}
	typ, answer, err := r.Answer(want.Key)
	if err != nil || typ != "T" || string(answer) != "a" {
		return fmt.Errorf("its answer is %q of %q: %v", answer, typ, err)
	}
	return r.Close()
}

func requestLarge(t testing.TB, open func(testing.TB) OpenRequests) error {
	q := answered("a", soon())
	q.Answer = bytes.Repeat([]byte("x"), 3*backend.MaxInline)
	q.Bytes = int64(len(q.Answer))
	r, list, err := after(open(t), nil, q)
	if err = errors.Join(err, hasRequests(list, "a")); err != nil {
		return err
	}
	typ, answer, err := r.Answer(q.Key)
	if err != nil || typ != "T" || !bytes.Equal(answer, q.Answer) || list[0].Bytes != q.Bytes {
		return fmt.Errorf("an answer of %d bytes comes back with %d, of %q: %v", q.Bytes, len(answer), typ, err)
	}
	if _, _, err := r.Answer(key("b")); err == nil {
		return errors.New("a request that was never made has an answer")
	}
	return r.Close()
}

func requestLatest(t testing.TB, open func(testing.TB) OpenRequests) error {
	begun := func(id string) backend.Request { return backend.Request{Key: key(id), Expires: soon()} }
	failed := begun("failed")
	failed.Over = true
	r, list, err := after(open(t), nil, begun("failed"), begun("a"), failed, answered("a", soon()))
	if err = errors.Join(err, hasRequests(list, "a")); err != nil {
		return err
	}
	if list[0].Type != "T" {
		return errors.New("a request that was answered is remembered as begun")
	}
	return r.Close()
}

func requestExpires(t testing.TB, open func(testing.TB) OpenRequests) error {
	r, list, err := after(open(t), nil, answered("past", time.Now().Add(-time.Minute)),
		answered("later", soon().Add(time.Minute)), answered("a", soon()))
	if err = errors.Join(err, hasRequests(list, "a", "later")); err != nil {
		return err
	}
	return r.Close()
}

// A record that was forgotten may be remembered again after the end of the process: it has expired
// by then, or a quota drops it anew.
func requestForgotten(t testing.TB, open func(testing.TB) OpenRequests) error {
	expires := soon()
	var err error
	r, list, opened := after(open(t), func(r backend.Requests) {
		r.Forget(key("a"), expires.Add(-time.Minute)) // there is a newer record
		r.Forget(key("b"), expires)
		if _, _, e := r.Answer(key("a")); e != nil {
			err = fmt.Errorf("the record of an earlier time was to be forgotten: %v", e)
		}
		if _, _, e := r.Answer(key("b")); e == nil {
			err = errors.New("a forgotten request has an answer")
		}
	}, answered("a", expires), answered("b", expires))
	if err = errors.Join(err, opened); err != nil {
		return err
	}
	if len(list) == 0 || list[0].Key != key("a") {
		return fmt.Errorf("of two requests, one forgotten, %v are remembered", list)
	}
	return r.Close()
}

func requestKeys(t testing.TB, open func(testing.TB) OpenRequests) error {
	list := []backend.Request{answered("a", soon()), answered("a", soon()), answered("a", soon())}
	list[1].Key.Tenant, list[1].Answer = "", []byte("b")
	list[2].Key.Operation, list[2].Answer = "Send\x00other", []byte("c")
	r, found, err := after(open(t), nil, list...)
	if err != nil || len(found) != len(list) {
		return fmt.Errorf("%d of %d requests are remembered: %v", len(found), len(list), err)
	}
	for _, q := range list {
		if _, answer, err := r.Answer(q.Key); err != nil || !bytes.Equal(answer, q.Answer) {
			return fmt.Errorf("the request %+v is answered %q: %v", q.Key, answer, err)
		}
	}
	return r.Close()
}
