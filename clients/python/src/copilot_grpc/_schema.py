"""JSON Schemas of Python types, and the conversion of JSON values to them."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typing_extensions

Decoder = Callable[[Any, str], Any]


class Mismatch(Exception):
    """A JSON value does not fit its type; the text names the place."""


@dataclass(frozen=True)
class Shape:
    """The JSON Schema of a type, and the conversion of a JSON value to it."""

    schema: dict[str, Any]
    decode: Decoder


@dataclass(frozen=True)
class Field:
    """A member of an object."""

    shape: Shape
    required: bool
    default: Any = None


_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
_SEQUENCES = (list, set, frozenset, tuple, collections.abc.Sequence, collections.abc.Iterable)
_SIMPLE: dict[Any, tuple[str, str]] = {str: ("string", "a string"), bool: ("boolean", "a boolean")}


def _found(value: Any) -> str:
    return _NAMES.get(type(value), "a number")


def _fail(path: str, want: str, value: Any) -> typing.NoReturn:
    raise Mismatch(f"{path or 'the arguments'}: expected {want}, got {_found(value)}")


def shape_of(hint: Any) -> Shape:
    """The shape of a type hint. Raises TypeError for a type that JSON cannot hold."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _annotated(args[0], args[1:])
    if origin in (typing_extensions.Required, typing_extensions.NotRequired):
        return shape_of(args[0])
    if origin in (typing.Union, types.UnionType):
        return _union(args)
    if origin is typing.Literal:
        return _literal(args)
    if origin in _SEQUENCES or hint in _SEQUENCES:
        return _array(origin or hint, args)
    if origin in (dict, collections.abc.Mapping) or hint in (dict, collections.abc.Mapping):
        return _mapping(args)
    return _plain(hint)


def _plain(hint: Any) -> Shape:
    if hint in (Any, object):
        return Shape({}, lambda value, path: value)
    if hint in (None, type(None)):
        return Shape({"type": "null"}, _decoder(lambda v: v is None, "null"))
    if hint in _SIMPLE:
        name, want = _SIMPLE[hint]
        return Shape({"type": name}, _decoder(lambda v: type(v) is hint, want))
    if hint is int:
        return Shape({"type": "integer"}, _integer)
    if hint is float:
        return Shape({"type": "number"}, _number)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enum(hint)
    if hasattr(hint, "model_json_schema"):
        return _model(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return object_shape(hint, _dataclass_fields(hint))
    if typing_extensions.is_typeddict(hint):
        return object_shape(None, _typeddict_fields(hint))
    raise TypeError(f"no JSON Schema for {hint!r}: use plain types, dataclasses, TypedDict or pydantic models")


def _decoder(fits: Callable[[Any], bool], want: str) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        if not fits(value):
            _fail(path, want, value)
        return value

    return decode


def _integer(value: Any, path: str) -> int:
    if type(value) is float and value.is_integer():  # JSON has one kind of number
        return int(value)
    if type(value) is not int:
        _fail(path, "an integer", value)
    return int(value)


def _number(value: Any, path: str) -> float:
    if type(value) not in (int, float):
        _fail(path, "a number", value)
    return float(value)


def _annotated(hint: Any, notes: tuple[Any, ...]) -> Shape:
    shape = shape_of(hint)
    text = next((note for note in notes if isinstance(note, str)), None)
    doc = next((note.documentation for note in notes if hasattr(note, "documentation")), text)
    description = next((note.description for note in notes if getattr(note, "description", None)), doc)
    return Shape({**shape.schema, "description": description}, shape.decode) if description else shape


def _union(args: tuple[Any, ...]) -> Shape:
    shapes = [shape_of(arg) for arg in args]

    def decode(value: Any, path: str) -> Any:
        failures = []
        for shape in shapes:
            try:
                return shape.decode(value, path)
            except Mismatch as failure:
                failures.append(str(failure))
        raise Mismatch("; or ".join(failures))

    return Shape({"anyOf": [shape.schema for shape in shapes]}, decode)


def _choice(values: dict[Any, Any]) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        for known, result in values.items():
            if known == value and type(known) is type(value):
                return result
        want = ", ".join(repr(known) for known in values)
        raise Mismatch(f"{path or 'the arguments'}: {value!r} is none of {want}")

    return decode


def _literal(args: tuple[Any, ...]) -> Shape:
    return Shape({"enum": list(args)}, _choice({arg: arg for arg in args}))


def _enum(hint: type[enum.Enum]) -> Shape:
    values = {member.value: member for member in hint}
    return Shape({"enum": list(values)}, _choice(values))


def _array(kind: Any, args: tuple[Any, ...]) -> Shape:
    if kind is tuple and args and args[-1] is not Ellipsis:
        return _fixed_tuple(args)
    item = shape_of(args[0]) if args else Shape({}, lambda value, path: value)
    make = kind if kind in (set, frozenset, tuple) else list

    def decode(value: Any, path: str) -> Any:
        if type(value) is not list:
            _fail(path, "an array", value)
        return make(item.decode(v, f"{path}[{i}]") for i, v in enumerate(value))

    schema: dict[str, Any] = {"type": "array", "items": item.schema}
    if make in (set, frozenset):
        schema["uniqueItems"] = True
    return Shape(schema, decode)


def _fixed_tuple(args: tuple[Any, ...]) -> Shape:
    shapes = [shape_of(arg) for arg in args]

    def decode(value: Any, path: str) -> Any:
        if type(value) is not list or len(value) != len(shapes):
            _fail(path, f"an array of {len(shapes)} items", value)
        return tuple(s.decode(v, f"{path}[{i}]") for i, (s, v) in enumerate(zip(shapes, value, strict=True)))

    items = [shape.schema for shape in shapes]
    return Shape({"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}, decode)


def _mapping(args: tuple[Any, ...]) -> Shape:
    if args and args[0] is not str:
        raise TypeError(f"no JSON Schema for a mapping with keys {args[0]!r}: JSON has string keys")
    item = shape_of(args[1]) if args else Shape({}, lambda value, path: value)

    def decode(value: Any, path: str) -> Any:
        if type(value) is not dict:
            _fail(path, "an object", value)
        return {key: item.decode(v, _join(path, key)) for key, v in value.items()}

    return Shape({"type": "object", "additionalProperties": item.schema}, decode)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _model(hint: Any) -> Shape:
    """The shape of a pydantic model. pydantic itself checks the values."""

    def decode(value: Any, path: str) -> Any:
        from pydantic import ValidationError

        try:
            return hint.model_validate(value)
        except ValidationError as failure:
            places = [(".".join(map(str, [path, *e["loc"]] if path else e["loc"])), e["msg"]) for e in failure.errors()]
            raise Mismatch("; ".join(f"{place or 'the arguments'}: {message}" for place, message in places)) from None

    return Shape(hint.model_json_schema(), decode)


def _dataclass_fields(hint: Any) -> dict[str, Field]:
    hints = typing_extensions.get_type_hints(hint, include_extras=True)
    found = {}
    for field in dataclasses.fields(hint):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        default = None if field.default is dataclasses.MISSING else field.default
        if field.init:
            found[field.name] = Field(shape_of(hints[field.name]), required, default)
    return found


def _typeddict_fields(hint: Any) -> dict[str, Field]:
    hints = typing_extensions.get_type_hints(hint, include_extras=True)
    fields = {}
    for name, member in hints.items():
        # __required_keys__ does not see markers in annotations that are text.
        marked: Any = typing.get_origin(member)
        required = name in hint.__required_keys__ and marked is not typing_extensions.NotRequired
        fields[name] = Field(shape_of(member), required or marked is typing_extensions.Required)
    return fields


def object_shape(make: Callable[..., Any] | None, fields: dict[str, Field]) -> Shape:
    """The shape of an object with these members. `make` receives them as keywords; None makes a dict."""
    properties = {}
    for name, field in fields.items():
        properties[name] = dict(field.shape.schema)
        if not field.required and isinstance(field.default, (str, int, float, bool)):
            default = field.default.value if isinstance(field.default, enum.Enum) else field.default
            properties[name]["default"] = default
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    required, names = {name for name, field in fields.items() if field.required}, frozenset(fields)
    if required:
        schema["required"] = [name for name in fields if name in required]

    def decode(value: Any, path: str) -> Any:
        if type(value) is not dict:
            _fail(path, "an object", value)
        problems: list[str] = []
        if not required.issubset(value) or not names.issuperset(value):
            problems += [f"{_join(path, name)}: is unknown" for name in value if name not in fields]
            problems += [f"{_join(path, n)}: is missing" for n, f in fields.items() if f.required and n not in value]
        decoded = {}
        for name, field in fields.items():
            if name in value:
                try:
                    decoded[name] = field.shape.decode(value[name], _join(path, name))
                except Mismatch as problem:
                    problems.append(str(problem))
        if problems:
            raise Mismatch("; ".join(problems))
        return make(**decoded) if make else decoded

    return Shape(schema, decode)


def parameters_of(function: Callable[..., Any], skip: frozenset[str]) -> Shape:
    """The shape of a function's parameters; decoding gives the keyword arguments.

    The members of a single parameter that is a dataclass, a TypedDict or a pydantic model are the parameters.
    """
    hints = typing_extensions.get_type_hints(function, include_extras=True)
    texts = docstring_arguments(function)
    fields: dict[str, Field] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in skip:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"parameter {parameter.name!r} cannot be given by name")
        if parameter.name not in hints:
            raise TypeError(f"parameter {parameter.name!r} has no type hint")
        shape = shape_of(hints[parameter.name])
        if (text := texts.get(parameter.name)) and "description" not in shape.schema:
            shape = Shape({**shape.schema, "description": text}, shape.decode)
        required = parameter.default is parameter.empty
        fields[parameter.name] = Field(shape, required, None if required else parameter.default)
    if len(fields) == 1:
        (name, only), *_ = fields.items()
        if only.required and _is_record(hints[name]):
            return Shape(hoist(only.shape.schema), lambda value, path: {name: only.shape.decode(value, path)})
    shape = object_shape(None, fields)
    return Shape(hoist(shape.schema), shape.decode)


def hoist(schema: dict[str, Any]) -> dict[str, Any]:
    """Moves the definitions of pydantic models to the top, where their references look for them."""
    found: dict[str, Any] = {}

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(item) for item in value]
        if not isinstance(value, dict):
            return value
        for name, definition in value.get("$defs", {}).items():
            if found.setdefault(name, definition) != definition:
                raise TypeError(f"two models have the name {name!r}")
        return {key: walk(item) for key, item in value.items() if key != "$defs"}

    top = walk(schema)
    return {**top, "$defs": {name: walk(definition) for name, definition in found.items()}} if found else top


def _is_record(hint: Any) -> bool:
    while typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    if hasattr(hint, "model_json_schema") or typing_extensions.is_typeddict(hint):
        return True
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


_ARGUMENT = re.compile(r"^ +(\w+)(?: *\([^)]*\))?: *(.*)$")


def docstring_arguments(function: Callable[..., Any]) -> dict[str, str]:
    """The descriptions in the `Args:` section of a docstring."""
    lines = iter(inspect.getdoc(function).splitlines() if inspect.getdoc(function) else ())  # type: ignore[union-attr]
    texts: dict[str, str] = {}
    name = ""
    for line in lines:
        if line.strip() in ("Args:", "Arguments:"):
            break
    for line in lines:
        if line and not line.startswith(" "):
            break
        if found := _ARGUMENT.match(line):
            name = found[1]
            texts[name] = found[2]
        elif name and line.strip():
            texts[name] += " " + line.strip()
    return texts


def docstring_summary(function: Callable[..., Any]) -> str:
    """The docstring up to its sections."""
    text = inspect.getdoc(function) or ""
    return re.split(r"\n\s*(?:Args|Arguments|Returns|Raises|Yields|Example|Examples):\s*\n", text + "\n")[0].strip()
