package copilot_test

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// noDatabase is a SQLite that no test calls.
type noDatabase struct{ copilot.SQLite }

// Each kind of callback has a function with types in SessionOptions.
func TestEveryKindHasATypedHandler(t *testing.T) {
	t.Parallel()
	files, err := copilot.OpenDirFS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	options := copilot.SessionOptions{
		SessionFS:      &copilot.SessionFS{Files: files, SQLite: noDatabase{}},
		ModelTransport: http.DefaultTransport,
		OnHooks:        copilot.Hooks{SubagentStop: func(context.Context, *cliv1.HookSubagentStopInput) error { return nil }},
	}
	fields := reflect.ValueOf(&options).Elem()
	for i := range fields.NumField() {
		field := fields.Field(i)
		if strings.HasPrefix(fields.Type().Field(i).Name, "On") && field.Kind() == reflect.Func {
			field.Set(reflect.MakeFunc(field.Type(), func([]reflect.Value) []reflect.Value { panic("not called") }))
		}
	}
	f, c := newFake(t)
	options.OnConnection = nil
	_, a := session(t, f, c, options)
	handlers := a.start.GetHandlers()
	if !handlers.GetPermission() {
		t.Error("permissions are not handled")
	}
	for number, name := range bridgev1.CallbackKind_name {
		kind := bridgev1.CallbackKind(number)
		switch kind {
		case bridgev1.CallbackKind_CALLBACK_KIND_UNSPECIFIED, bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL,
			bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION, bridgev1.CallbackKind_CALLBACK_KIND_RAW:
			continue // tools, the flag above, and methods
		}
		if !slices.Contains(handlers.GetKinds(), kind) {
			t.Errorf("%s has no typed handler", name)
		}
	}
}

func TestProvidersAnswer(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	_, a := session(t, f, c, copilot.SessionOptions{
		OnSkillList: func(context.Context, *copilot.SkillListRequest) (*copilot.SkillListAnswer, error) {
			return &copilot.SkillListAnswer{Skills: []*cliv1.SkillProviderDescriptor{{Name: "knots"}}}, nil
		},
		OnTaskCancel: func(_ context.Context, r *cliv1.CallbackTasksServiceCancelRequest) (bool, error) {
			return r.GetId() == "t1", nil
		},
		OnWorkflowAbort: func(context.Context, *cliv1.CallbackWorkflowServiceAbortRequest) error {
			return copilot.ErrAbstain
		},
		OnUIThread: func(context.Context, *cliv1.CallbackUiThreadServiceRunRequest) error { return nil },
	})
	a.ask(question("c1", bridgev1.CallbackKind_CALLBACK_KIND_SKILL_LIST, func(cb *bridgev1.Callback) {
		cb.Request = &bridgev1.Callback_SkillList{SkillList: &copilot.SkillListRequest{}}
	}))
	if got := a.answer().GetAnswer().GetSkillList().GetSkills(); len(got) != 1 || got[0].GetName() != "knots" {
		t.Errorf("skills = %v", got)
	}
	a.ask(question("c2", bridgev1.CallbackKind_CALLBACK_KIND_TASK_CANCEL, func(cb *bridgev1.Callback) {
		cb.Request = &bridgev1.Callback_TaskCancel{TaskCancel: &cliv1.CallbackTasksServiceCancelRequest{Id: "t1"}}
	}))
	if got := a.answer().GetAnswer(); !got.GetTaskCancel().GetCancelled() {
		t.Errorf("answer = %v", got)
	}
	a.ask(question("c3", bridgev1.CallbackKind_CALLBACK_KIND_WORKFLOW_ABORT, func(cb *bridgev1.Callback) {
		cb.Request = &bridgev1.Callback_WorkflowAbort{WorkflowAbort: &cliv1.CallbackWorkflowServiceAbortRequest{}}
	}))
	if got := a.answer().GetAnswer(); got.GetAbstain() == nil {
		t.Errorf("answer = %v", got)
	}
	a.ask(question("c4", bridgev1.CallbackKind_CALLBACK_KIND_UI_THREAD, func(cb *bridgev1.Callback) {
		cb.Request = &bridgev1.Callback_UiThread{UiThread: &cliv1.CallbackUiThreadServiceRunRequest{}}
	}))
	if got := a.answer().GetAnswer(); got.GetUiThread() == nil {
		t.Errorf("answer = %v", got)
	}
}
