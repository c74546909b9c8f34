// Package ask puts a callback that waits for a person into words, and a person's words into its answer.
//
// The conversation, the inbox and its commands share it, so that the same words mean the same everywhere. It has no
// terminal and no connection. All texts of a Question are the agent's: see package terminal.
package ask

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Form says which answers a question takes.
type Form int

const (
	// Other questions are not for people; a program answers them.
	Other Form = iota
	// Approval takes approve and deny.
	Approval
	// Permission takes approve, approve for the session, and deny.
	Permission
	// Text takes a text, or the number of a choice.
	Text
	// Fields takes values of a form's fields, or deny.
	Fields
)

// Question is a callback in words.
type Question struct {
	Form Form
	// What is asked, in a line: "Run a command".
	Title string
	// What the decision is about, such as the command; may have several lines.
	Detail string
	// Detail is a unified diff.
	IsDiff bool
	// Why the agent asks, and warnings: a line each.
	Notes []string
	// Answers to choose from.
	Choices []string
	// The answer must be one of Choices.
	ChoicesOnly bool
	// The fields of a form.
	Fields []Field

	callback *bridgev1.Callback
}

// Of returns the question of a callback.
func Of(cb *bridgev1.Callback) Question {
	q := Question{callback: cb}
	switch r := cb.GetRequest().(type) {
	case *bridgev1.Callback_Permission:
		q.Form = Permission
		q.permission(r.Permission.GetPermissionRequest())
	case *bridgev1.Callback_UserInput:
		q.Form, q.Title = Text, r.UserInput.GetQuestion()
		q.Choices = r.UserInput.GetChoices()
		q.ChoicesOnly = len(q.Choices) > 0 && r.UserInput.AllowFreeform != nil && !r.UserInput.GetAllowFreeform()
	case *bridgev1.Callback_Elicitation:
		q.form(r.Elicitation)
	case *bridgev1.Callback_ExitPlanMode:
		q.Form, q.Title, q.Detail = Approval, "Carry out the plan: "+r.ExitPlanMode.GetSummary(), r.ExitPlanMode.GetPlanContent()
	case *bridgev1.Callback_AutoModeSwitch:
		q.Form, q.Title = Approval, "Use another model, because of a rate limit"
		if code := r.AutoModeSwitch.GetErrorCode(); code != "" {
			q.Notes = []string{"Error of the model: " + code}
		}
	case *bridgev1.Callback_InstallationConfirm:
		q.Form, q.Title, q.Detail = Approval, "Install", jsonOf(r.InstallationConfirm.GetReview())
	case *bridgev1.Callback_ToolCall:
		q.Form, q.Title = Text, "Result of the tool "+r.ToolCall.GetToolName()
		q.Detail = r.ToolCall.GetArgumentsJson()
	case nil:
		q.missing(cb)
	default:
		q.Title = kindOf(cb)
	}
	return q
}

// missing is a callback without its request, which was too large to send along.
func (q *Question) missing(cb *bridgev1.Callback) {
	q.Title = kindOf(cb)
	if size := cb.GetTotalBytes(); size > 0 {
		q.Notes = []string{fmt.Sprintf("The request has %d bytes and was not sent; CallbackService/ReadCallback reads it.", size)}
	}
	if cb.GetKind() == bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION {
		q.Form = Permission
	}
}

func kindOf(cb *bridgev1.Callback) string {
	name := strings.TrimPrefix(cb.GetKind().String(), "CALLBACK_KIND_")
	return strings.ToLower(strings.ReplaceAll(name, "_", " "))
}

// Action is what a person decides.
type Action int

const (
	// Approve approves once.
	Approve Action = iota + 1
	// ApproveForSession approves this and equal requests for the rest of the session.
	ApproveForSession
	// Deny refuses.
	Deny
	// Answer answers with a text.
	Answer
)

// Reply is a decision with its text: the feedback of Deny, the text of Answer.
type Reply struct {
	Action Action
	Text   string
}

// errNotFor says that a question does not take a decision.
func (q Question) errNotFor(what string) error {
	return fmt.Errorf("%s: %s", what, q.Hint())
}

// Answer returns the answer for the API. An error says what the question takes instead.
func (q Question) Answer(r Reply) (*bridgev1.Answer, error) {
	switch r.Action {
	case Approve:
		return q.approve()
	case ApproveForSession:
		if q.Form != Permission {
			return nil, q.errNotFor("only permissions can be approved for the session")
		}
		return copilot.AnswerPermission(copilot.ApproveForSession()), nil
	case Deny:
		return q.deny(r.Text)
	case Answer:
		return q.text(r.Text)
	}
	return nil, errors.New("no decision")
}

func (q Question) approve() (*bridgev1.Answer, error) {
	if q.Form != Permission && q.Form != Approval {
		return nil, q.errNotFor("this is no request for approval")
	}
	if plan := q.callback.GetExitPlanMode(); plan != nil {
		return copilot.AnswerWith(copilot.ApprovePlan(plan))
	}
	return copilot.AnswerApprove(), nil
}

func (q Question) deny(feedback string) (*bridgev1.Answer, error) {
	switch {
	case q.callback.GetExitPlanMode() != nil:
		return copilot.AnswerWith(copilot.RejectPlan(feedback))
	case q.callback.GetElicitation() != nil:
		return copilot.AnswerWith(copilot.DeclineForm())
	case q.Form == Permission, q.Form == Approval:
		return copilot.AnswerReject(feedback), nil
	}
	return nil, q.errNotFor("this is no request for approval")
}

func (q Question) text(text string) (*bridgev1.Answer, error) {
	switch {
	case q.Form == Fields:
		values, err := q.values(text)
		if err != nil {
			return nil, err
		}
		form, err := copilot.AcceptForm(values)
		if err != nil {
			return nil, err
		}
		return copilot.AnswerWith(form)
	case q.callback.GetToolCall() != nil:
		return copilot.AnswerTool(text)
	case q.Form == Text:
		chosen, err := q.choice(text)
		if err != nil {
			return nil, err
		}
		return copilot.AnswerWith(copilot.UserAnswer(q.callback.GetUserInput(), chosen))
	}
	return nil, q.errNotFor("this question takes no text")
}

// choice is the choice with a number, or else the text itself.
func (q Question) choice(text string) (string, error) {
	for _, one := range q.Choices {
		if one == text {
			return one, nil
		}
	}
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(q.Choices) {
		return q.Choices[n-1], nil
	}
	if q.ChoicesOnly {
		return "", q.errNotFor(fmt.Sprintf("%q is not one of the choices", text))
	}
	return text, nil
}

// Parse reads what a person types: "y", "s" or "n" with feedback for approvals, and a text for questions.
func (q Question) Parse(line string) (Reply, error) {
	line = strings.TrimSpace(line)
	word, rest, _ := strings.Cut(line, " ")
	switch q.Form {
	case Other:
		return Reply{}, errors.New("a program answers this, not a person")
	case Text:
		if line == "" {
			return Reply{}, errors.New(q.Hint())
		}
		return Reply{Answer, line}, nil
	case Fields:
		if lower := strings.ToLower(line); lower == "n" || lower == "no" {
			return Reply{Action: Deny}, nil
		}
		return Reply{Answer, line}, nil
	}
	switch strings.ToLower(strings.Trim(word, ",.:")) {
	case "y", "yes":
		if rest == "" {
			return Reply{Action: Approve}, nil
		}
	case "s", "session":
		if rest == "" && q.Form == Permission {
			return Reply{Action: ApproveForSession}, nil
		}
	case "n", "no":
		return Reply{Deny, strings.TrimSpace(rest)}, nil
	}
	return Reply{}, errors.New(q.Hint())
}

// Hint says what a person can type.
func (q Question) Hint() string {
	switch q.Form {
	case Permission:
		return "y approves once, s for the session, n refuses and ends the turn, n WHY refuses and tells the agent why"
	case Approval:
		return "y approves, n refuses, n WHY refuses and tells the agent why"
	case Text:
		switch {
		case q.ChoicesOnly:
			return fmt.Sprintf("type a number from 1 to %d", len(q.Choices))
		case len(q.Choices) > 0:
			return fmt.Sprintf("type a number from 1 to %d, or an answer of your own", len(q.Choices))
		}
		return "type the answer"
	case Fields:
		if len(q.Fields) == 1 {
			return "type the value of " + q.Fields[0].Name + ", or n to decline"
		}
		return `type NAME=VALUE; NAME=VALUE or a JSON object, or n to decline`
	default:
		return "a program answers this, not a person"
	}
}

// HowEnded says how a callback ended, in words.
func HowEnded(r *bridgev1.CallbackResolved) string {
	switch r.GetOutcome() {
	case bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED:
		return "answered by " + cmp.Or(r.GetAnsweredBy(), "another program")
	case bridgev1.CallbackOutcome_CALLBACK_OUTCOME_TIMED_OUT:
		return "nobody answered in time, so it got the safe default"
	case bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN:
		return "the agent no longer asks"
	case bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST:
		return "the agent's process ended"
	case bridgev1.CallbackOutcome_CALLBACK_OUTCOME_SESSION_ENDED:
		return "the session ended"
	default:
		return "nobody was there to answer"
	}
}

func jsonOf(value any) string {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil { // the callers' values always encode
		return fmt.Sprint(value)
	}
	return string(text)
}
