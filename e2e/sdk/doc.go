// Package sdk holds the proof that programs of GitHub's own SDKs run unchanged over
// copilot-grpc shim. A scenario is written once per SDK, against the package as it is
// published, and writes down what it saw: answers, errors, the types of the events that a
// session keeps. It is played against the real CLI and against the shim with a bridge
// behind it, and the two records must be equal once ids, times and places are masked.
//
// What the scenarios need is prepared by .ci/sdk, which runs these tests.
package sdk
