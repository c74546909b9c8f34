"""A session with a tool and a permission, over one bidirectional stream: the caller brings
a tool, asks the agent something, answers what it is asked, and prints what it is told.

    python -m examples.agent ADDRESS
"""

import asyncio
import json
import os
import sys

from copilot_client import connect
from copilot_grpc.bridge.v1 import callback_pb2 as callback
from copilot_grpc.bridge.v1 import callback_service_pb2 as attach
from copilot_grpc.bridge.v1 import event_service_pb2 as events
from copilot_grpc.bridge.v1 import session_pb2 as sessions
from copilot_grpc.bridge.v1 import session_service_pb2 as session_service
from copilot_grpc.bridge.v1.callback_service_pb2_grpc import CallbackServiceStub
from copilot_grpc.cli.v1 import common_pb2 as common
from copilot_grpc.cli.v1 import session_pb2 as config

# What the model is told of the tool.
GET_WEATHER = common.ToolDefinition(
    name="get_weather",
    description="Tells the weather in a city",
    parameters_json=json.dumps(
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    ),
)


def answer_to(asked: callback.Callback) -> callback.Answer:
    """Answers what the agent asks: the call of the tool, or leave to call it."""
    match asked.WhichOneof("request"):
        case "tool_call":
            call = asked.tool_call
            print("tool", call.tool_name, call.arguments_json, flush=True)
            city = json.loads(call.arguments_json)["city"]
            return callback.Answer(tool=callback.ToolAnswer(text=f"rain in {city}"))
        case "permission":
            kind = asked.permission.permission_request.WhichOneof("variant")
            print("permission", kind, flush=True)
            # Look at what is asked before saying yes; reject=callback.Reject(feedback=…) is no.
            return callback.Answer(approve=callback.Approve())
        case _:
            return callback.Answer(abstain=callback.Abstain())


def show(event: events.Event) -> bool:
    """Prints what the agent says. Returns whether its turn is over."""
    match event.event.WhichOneof("data"):
        case "assistant_message":
            if content := event.event.assistant_message.content:
                print("assistant:", content, flush=True)
        case "session_error":
            raise RuntimeError(event.event.session_error.message)
        case "session_idle":
            return True
    return False


async def main(address: str) -> None:
    # The first frame creates the session, with the tool and the handler in place before
    # the agent can ask for either.
    start = attach.AttachStart(
        create=session_service.CreateSessionRequest(
            config=config.SessionConfig(client_name="example")
        ),
        tools=[GET_WEATHER],
        handlers=callback.Handlers(permission=True),
    )
    async with connect(address, os.environ.get("COPILOT_GRPC_TOKEN")) as channel:
        stream = CallbackServiceStub(channel).Attach()
        await stream.write(attach.AttachRequest(start=start))
        async for response in stream:
            match response.WhichOneof("frame"):
                case "started":
                    print("session", response.started.session.session_id, flush=True)
                    prompt = sessions.Prompt(text="What is the weather in Paris?")
                    ask = attach.AttachCommand(command_id="ask", send=prompt)
                    await stream.write(attach.AttachRequest(command=ask))
                case "stream" if response.stream.HasField("callback_requested"):
                    request = response.stream.callback_requested
                    if request.offered:
                        answer = attach.CallbackAnswer(
                            callback_id=request.callback.callback_id,
                            answer=answer_to(request.callback),
                        )
                        await stream.write(attach.AttachRequest(answer=answer))
                case "stream" if any([show(e) for e in response.stream.events.events]):
                    # Half-closing leaves the session; the server then ends the stream.
                    await stream.done_writing()
                case "failed":
                    raise RuntimeError(response.failed.failure.message)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
