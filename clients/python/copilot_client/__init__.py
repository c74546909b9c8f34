"""What the generated stubs of copilot_grpc are clumsy at. Copy what you need."""

from copilot_client.channel import connect
from copilot_client.follow import follow

__all__ = ["connect", "follow"]
