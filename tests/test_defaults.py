"""Defaults of specs are as if they had been stated: nobody checks them again whenever a spec is read."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter

import distsim.specs
from distsim.specs.base import Spec


def specs() -> list[type[Spec]]:
    found: dict[str, type[Spec]] = {}
    for module in pkgutil.iter_modules(distsim.specs.__path__):
        for held in vars(importlib.import_module(f"distsim.specs.{module.name}")).values():
            if isinstance(held, type) and issubclass(held, Spec):
                found[f"{held.__module__}.{held.__name__}"] = held
    return [found[name] for name in sorted(found)]


@pytest.mark.parametrize("spec", specs(), ids=lambda spec: spec.__name__)
def test_a_default_is_what_reading_it_makes_of_it(spec: type[Spec]) -> None:
    """Of the same types within, too: a rate of 0 and one of 0.0 are told apart where they are printed."""
    for name, field in spec.model_fields.items():
        if field.is_required():
            continue
        default: Any = field.get_default(call_default_factory=True)
        kind: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        read = TypeAdapter(kind).validate_python(default)
        assert read == default, name
        assert repr(read) == repr(default), name


def test_validators_of_fields_leave_defaults_as_they_are() -> None:
    for spec in specs():
        for one in spec.__pydantic_decorators__.field_validators.values():
            for name in one.info.fields:
                field = spec.model_fields.get(name)
                if field is None or field.is_required():
                    continue
                default = field.get_default(call_default_factory=True)
                told = (SimpleNamespace(field_name=name),) if len(inspect.signature(one.func).parameters) > 1 else ()
                assert one.func(default, *told) == default, (spec, name)
