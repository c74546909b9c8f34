package natsstore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// OpenError reports that Open failed. Its text has no credentials.
type OpenError struct {
	// Detail says what failed, with which value, and what to do.
	Detail string
	// Err is the cause, nil if there is none.
	Err error
}

// Error implements error.
func (e *OpenError) Error() string {
	if e.Err == nil {
		return "opening the cluster's storage in NATS: " + e.Detail
	}
	return fmt.Sprintf("opening the cluster's storage in NATS: %s: %v", e.Detail, e.Err)
}

// Unwrap returns the cause.
func (e *OpenError) Unwrap() error { return e.Err }

// isDenied reports whether a connection failed because the server refuses the credentials.
func isDenied(err error) bool {
	return slices.ContainsFunc([]error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrPermissionViolation, nats.ErrNkeyButNoSigCB, nats.ErrNkeysNotSupported,
	}, func(cause error) bool { return errors.Is(err, cause) })
}

// Codes of the server for refused writes.
const (
	// wrongLast: the write states another last sequence number than there is.
	wrongLast jetstream.ErrorCode = jetstream.JSErrCodeStreamWrongLastSequence
	// wrongLastInFlight: another write to the same subject is not stored yet, so that the right number is not known.
	wrongLastInFlight jetstream.ErrorCode = jetstream.JSErrCodeStreamWrongLastSequenceConstant
	// duplicateInFlight: an earlier attempt to store the message has not ended.
	duplicateInFlight jetstream.ErrorCode = 10158
	// notAvailable: the servers elect a leader.
	notAvailable jetstream.ErrorCode = 10008
)

// codeOf returns the server's code of an error, 0 if it has none.
func codeOf(err error) jetstream.ErrorCode {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.ErrorCode
	}
	return 0
}
