import grpc
import grpc.aio


def connect(address: str, token: str | None = None) -> grpc.aio.Channel:
    """Connects to a server by its address as `copilot-grpc serve` prints it: `unix:PATH`,
    or `HOST:PORT`, which asks for the server's token.

    Connecting happens at the first call, and again by itself when the connection broke.
    """
    if token is None:
        return grpc.aio.insecure_channel(address)
    # gRPC sends tokens over channels it trusts. It trusts this one, without encryption,
    # for as long as the address is one of this machine.
    local = grpc.local_channel_credentials(
        grpc.LocalConnectionType.UDS
        if address.startswith("unix:")
        else grpc.LocalConnectionType.LOCAL_TCP
    )
    bearer = grpc.access_token_call_credentials(token)
    return grpc.aio.secure_channel(address, grpc.composite_channel_credentials(local, bearer))
