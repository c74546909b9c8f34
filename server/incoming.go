package server

import (
	"context"

	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/server/account"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
)

// checked registers services whose unary requests are checked before they are decoded. Messages of streams are checked
// as they are received.
type checked struct {
	grpc.ServiceRegistrar
	chain *chain
}

// RegisterService implements grpc.ServiceRegistrar.
func (r checked) RegisterService(desc *grpc.ServiceDesc, impl any) {
	with := *desc
	with.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		with.Methods[i] = grpc.MethodDesc{MethodName: m.MethodName,
			Handler: r.handler("/"+desc.ServiceName+"/"+m.MethodName, m.Handler)}
	}
	r.ServiceRegistrar.RegisterService(&with, impl)
}

// handler returns the handler of a method.
func (r checked) handler(method string, handle grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, ic grpc.UnaryServerInterceptor) (any, error) {
		in := codec.Incoming{Account: accountOf(ctx)}
		defer in.Account.End()
		reply, err := handle(srv, ctx, func(m any) error {
			in.Value = m
			if err := decode(&in); err != nil {
				in.Err = err
			}
			in.Value = nil
			return in.Err
		}, ic)
		if in.Err != nil {
			return nil, r.chain.unreadable(ctx, method, in.Err)
		}
		return reply, err
	}
}

// accountOf returns a new account for a call by gRPC; nil if its connection has no limits.
func accountOf(ctx context.Context) *account.Account { return account.New(streamOf(ctx).Budget()) }
