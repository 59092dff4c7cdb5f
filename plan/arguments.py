"""A call's arguments against its tool's JSON schema: what can be read losslessly is, everything else is named.

Knows nothing of tools, plans or what the values mean.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from plan.text import brief

MAX_FAULTS = 6
"""Faults named in one refusal: enough to mend a call, few enough to be read."""

NOTHING = ("null", "none", "undefined", "")
"""Words that weak models write where an optional value is meant to be absent."""


def fit(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value in the type its schema asks for, where that loses nothing; otherwise as it is.

    Texts are trimmed and in NFC; a number or boolean in quotes, an encoded object or array, and an enum value in
    other case are read only where the schema allows no text; nulls of optional fields are dropped.
    """
    kind = schema.get("type")
    if isinstance(value, str):
        value = unicodedata.normalize("NFC", value).strip()
        return _FROM_TEXT.get(str(kind), _enum_value)(value, schema) if "anyOf" not in schema else value
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [fit(item, _item_schema(item, schema)) for item in value]
    if isinstance(value, Mapping):
        return _fit_object(value, schema)
    return value


def faults(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[dict[str, str]]:
    """What is wrong with the arguments: field, expected, received. A name the schema doesn't list is a fault too."""
    strict = _closed({"type": "object", **schema})
    errors = Draft202012Validator(strict, format_checker=FormatChecker(["date"])).iter_errors(dict(arguments))
    found = [_fault(error) for error in sorted(errors, key=lambda e: (list(map(str, e.absolute_path)), e.message))]
    return found[:MAX_FAULTS]


def _closed(schema: Any) -> Any:
    """The schema with every object closed that lists its properties and doesn't say that it is open."""
    if isinstance(schema, list):
        return [_closed(inner) for inner in schema]
    if not isinstance(schema, Mapping):
        return schema
    inner = {k: {n: _closed(s) for n, s in v.items()} if k == "properties" else _closed(v) for k, v in schema.items()}
    return {"additionalProperties": False, **inner} if "properties" in inner else inner


def _fault(error: Any) -> dict[str, str]:
    path = ".".join(str(part) for part in error.absolute_path)
    if error.validator == "required":
        missing = next((n for n in error.validator_value if n not in error.instance), "?")
        expected = (error.schema.get("properties") or {}).get(missing) or {}
        return {"field": f"{path}.{missing}".lstrip("."), "expected": _expected(expected), "received": "nothing"}
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties") or {})
        unknown = ", ".join(sorted(str(n) for n in error.instance if n not in known))
        return {"field": path or brief(unknown), "expected": f"only {', '.join(known)}", "received": brief(unknown)}
    return {"field": path or "arguments", "expected": _expected(error.schema), "received": brief(error.instance)}


def _expected(schema: Mapping[str, Any]) -> str:
    """What a schema asks for, in a few words."""
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(_expected(option) for option in schema["anyOf"])
    words = [str(schema.get("type", "a value"))]
    if schema.get("type") == "object" and schema.get("properties"):
        words.append("with " + ", ".join(schema["properties"]))
    words += [f"{name} {schema[key]}" for key, name in _LIMITS.items() if key in schema]
    return " ".join(words) + (f" ({schema['description']})" if "description" in schema else "")


_LIMITS = {
    "minimum": "from",
    "maximum": "to",
    "minLength": "of at least",
    "maxLength": "of at most",
    "minItems": "of at least",
    "maxItems": "of at most",
}


def _fit_object(value: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    known, required = schema.get("properties") or {}, schema.get("required") or ()
    named = {name if name in known else _bare_name(name, known, value): inner for name, inner in value.items()}
    fitted = {name: fit(inner, known.get(name, {})) for name, inner in named.items()}
    return {
        name: inner
        for name, inner in fitted.items()
        if name in required or not (inner is None or _means_nothing(inner, known.get(name, {})))
    }


def _bare_name(name: str, known: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """The field that a name means: stray marks around it are cut if a known field remains that isn't given itself."""
    bare = name.strip(" ,.:;'\"`*")
    return bare if bare in known and bare not in given else name


def _means_nothing(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a text stands for an absent value: only where the schema has no use for that text."""
    takes_text = schema.get("type") in (None, "string") and "enum" not in schema
    return isinstance(value, str) and value.casefold() in NOTHING and not takes_text


def _item_schema(item: Any, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    items: Mapping[str, Any] = schema.get("items") or {}
    kind = "object" if isinstance(item, Mapping) else "string" if isinstance(item, str) else None
    return next((option for option in items.get("anyOf", ()) if option.get("type") == kind), items)


def _enum_value(text: str, schema: Mapping[str, Any]) -> Any:
    same = [v for v in schema.get("enum", ()) if isinstance(v, str) and v.casefold() == text.casefold()]
    return same[0] if len(same) == 1 else text


def _number(text: str, _schema: Mapping[str, Any]) -> Any:
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _integer(text: str, schema: Mapping[str, Any]) -> Any:
    number = _number(text, schema)
    return int(number) if isinstance(number, float) and number.is_integer() else text


def _boolean(text: str, _schema: Mapping[str, Any]) -> Any:
    return {"true": True, "false": False}.get(text.casefold(), text)


def _decoded(kind: type) -> Callable[[str, Mapping[str, Any]], Any]:
    def decode(text: str, schema: Mapping[str, Any]) -> Any:
        try:
            value = json.loads(text)
        except ValueError:
            return text
        return fit(value, schema) if isinstance(value, kind) else text

    return decode


_FROM_TEXT: Mapping[str, Callable[[str, Mapping[str, Any]], Any]] = {
    "number": _number,
    "integer": _integer,
    "boolean": _boolean,
    "object": _decoded(dict),
    "array": _decoded(list),
}
