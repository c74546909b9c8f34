"""JSON Schemas of functions, and arguments that fit or do not."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Optional, TypedDict, Union

import pydantic
import pytest
from typing_extensions import NotRequired

from copilot_grpc import Tool, ToolCall, ToolError, tool

CALL = ToolCall("s", "c", "t", "tool")


class Colour(enum.Enum):
    RED = "red"


class Options(TypedDict):
    deep: bool
    limit: NotRequired[int]


@dataclass
class Place:
    city: str
    tags: list[str] = field(default_factory=list)


class Inner(pydantic.BaseModel):
    size: int = pydantic.Field(ge=0)


class Outer(pydantic.BaseModel):
    inner: Inner
    name: str = "x"


def schema_of(hint: Any) -> Any:
    def function(value: Any) -> None:
        """Does nothing."""

    function.__annotations__ = {"value": hint}
    made = Tool(function, name="f", description="")
    return made.parameters["properties"].get("value", made.parameters)


def decoded(hint: Any, value: Any) -> Any:
    def function(value: Any, other: int = 0) -> None:
        """Does nothing."""

    function.__annotations__ = {"value": hint, "other": int}
    return Tool(function, name="f", description="").arguments(json.dumps({"value": value}), CALL)["value"]


@pytest.mark.parametrize(
    ("hint", "schema", "good", "value", "bad"),
    [
        (str, {"type": "string"}, "x", "x", 5),
        (bool, {"type": "boolean"}, True, True, 1),
        (int, {"type": "integer"}, 3.0, 3, 3.5),
        (float, {"type": "number"}, 3, 3.0, True),
        (None, {"type": "null"}, None, None, 0),
        (Any, {}, {"a": [1]}, {"a": [1]}, None),
        (list[int], {"type": "array", "items": {"type": "integer"}}, [1], [1], ["x"]),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}, ["x"], ["x"], "x"),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}, ["x"], {"x"}, [1]),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": 1}, [1]),
        (Literal["a", 1], {"enum": ["a", 1]}, 1, 1, "b"),
        (Colour, {"enum": ["red"]}, "red", Colour.RED, "blue"),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None, "x"),
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "x", "x", []),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}, 1, 1, "x"),
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
            [1, "x"], (1, "x"), [1],
        ),
    ],
)  # fmt: skip
def test_plain_types(hint: Any, schema: Any, good: Any, value: Any, bad: Any) -> None:
    assert schema_of(hint) == schema
    assert decoded(hint, good) == value and type(decoded(hint, good)) is type(value)
    if hint is not Any:
        with pytest.raises(ToolError, match=r"value"):
            decoded(hint, bad)


def test_records() -> None:
    place = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["city"],
        "additionalProperties": False,
    }
    assert schema_of(Place) == place
    assert decoded(Place, {"city": "x"}) == Place("x", [])
    with pytest.raises(ToolError, match=r"value\.tags\[1\]: expected a string, got a number; or value"):
        decoded(Union[Place, Options], {"city": "x", "tags": ["a", 1]})
    assert schema_of(Options)["required"] == ["deep"] and decoded(Options, {"deep": True}) == {"deep": True}


def test_pydantic_models_keep_their_references() -> None:
    @tool
    def f(outer: Outer, list_of: list[Inner]) -> None:
        """Does nothing."""

    assert set(f.parameters["$defs"]) == {"Inner"}
    assert f.parameters["properties"]["outer"]["properties"]["inner"] == {"$ref": "#/$defs/Inner"}
    arguments = f.arguments('{"outer": {"inner": {"size": 1}}, "list_of": [{"size": 2}]}', CALL)
    assert arguments == {"outer": Outer(inner=Inner(size=1)), "list_of": [Inner(size=2)]}
    with pytest.raises(ToolError, match=r"outer\.inner\.size: Input should be greater"):
        f.arguments('{"outer": {"inner": {"size": -1}}, "list_of": []}', CALL)


def test_a_single_record_is_the_parameters() -> None:
    @tool
    def f(place: Place, call: ToolCall) -> str:
        """Finds a place.

        It is near.

        Args:
            place: Not needed.
        """
        return f"{place.city} {call.tool_call_id}"

    assert f.description == "Finds a place.\n\nIt is near."
    assert set(f.parameters["properties"]) == {"city", "tags"}
    assert f(**f.arguments('{"city": "x"}', CALL)) == "x t"


def test_docstrings_describe_parameters() -> None:
    @tool("named", skip_permission=True, title="A title")
    def f(a: int, b: str = "x", c: Annotated[bool, "kept"] = False) -> None:
        """Does it.

        Args:
            a: The first,
                in two lines.
            b (str): The second.
            c: Not used.

        Returns:
            Nothing.
        """

    properties = f.parameters["properties"]
    assert properties["a"] == {"type": "integer", "description": "The first, in two lines."}
    assert properties["b"] == {"type": "string", "description": "The second.", "default": "x"}
    assert properties["c"]["description"] == "kept" and f.parameters["required"] == ["a"]
    definition = f.definition()
    assert (definition.name, definition.title, definition.skip_permission) == ("named", "A title", True)
    assert json.loads(definition.parameters_json) == f.parameters


def test_a_schema_of_its_own() -> None:
    @tool(parameters={"type": "object", "properties": {"x": {}}})
    def f(arguments: dict[str, object]) -> object:
        """Takes the object."""
        return arguments["x"]

    assert f(**f.arguments('{"x": 1}', CALL)) == 1


def test_functions_that_cannot_be_tools() -> None:
    with pytest.raises(TypeError, match=r"tool 'f': parameter 'x' has no type hint"):

        @tool
        def f(x) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(TypeError, match="cannot be given by name"):

        @tool
        def g(*x: int) -> None: ...

    with pytest.raises(TypeError, match="no JSON Schema for"):

        @tool
        def h(x: complex) -> None: ...

    with pytest.raises(TypeError, match="string keys"):

        @tool
        def i(x: dict[int, str]) -> None: ...

    with pytest.raises(ValueError, match="does not match"):

        @tool("bad name")
        def j() -> None: ...


async def test_tools_can_be_called_like_their_functions() -> None:
    @tool
    async def f(x: int) -> int:
        """Adds one."""
        return x + 1

    assert await f(1) == 2 and repr(f) == "<tool f>" and f.is_coroutine
