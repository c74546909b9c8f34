package natsstore

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Problem says why a store cannot be opened.
type Problem string

// The problems of an OpenError.
const (
	// Misconfigured: a field of Config is wrong.
	Misconfigured Problem = "misconfigured"
	// Unreachable: no server answers at the URL.
	Unreachable Problem = "unreachable"
	// Denied: the server refuses the credentials, or they lack a permission.
	Denied Problem = "denied"
	// NoJetStream: the server or the account has no JetStream, or JetStream does not answer.
	NoJetStream Problem = "no JetStream"
	// Unsafe: the server can lose acknowledged messages, or is too old. Config.Unsafe accepts it.
	Unsafe Problem = "unsafe"
	// Foreign: a stream with the name of one of ours has other settings. Nothing in it was changed.
	Foreign Problem = "foreign"
	// Failed: a call failed for another reason.
	Failed Problem = "failed"
)

// OpenError reports that Open failed. Its text has no credentials.
type OpenError struct {
	Problem Problem
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

// problemOf classifies the error of a connection or of a call.
func problemOf(err error) Problem {
	for problem, causes := range map[Problem][]error{
		Denied: {
			nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
			nats.ErrPermissionViolation, nats.ErrNkeyButNoSigCB, nats.ErrNkeysNotSupported,
		},
		NoJetStream: {
			jetstream.ErrJetStreamNotEnabled, jetstream.ErrJetStreamNotEnabledForAccount,
		},
		Unreachable: {
			nats.ErrNoServers, nats.ErrTimeout, nats.ErrConnectionClosed, nats.ErrSecureConnRequired,
			nats.ErrSecureConnWanted,
		},
	} {
		for _, cause := range causes {
			if errors.Is(err, cause) {
				return problem
			}
		}
	}
	return Failed
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
