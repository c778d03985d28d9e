"""Options from the fields of a struct: names, types, defaults and help are written there only."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar, get_args, get_origin

import click
import msgspec
from msgspec import inspect

from lpgcn.config import Config, SuiteName, parse, read_toml
from lpgcn.runtime.runs.source import Source
from lpgcn.terms import LEAST_MEMBERS

_ALSO: Final = {"minimum_rating": ("--min-rating",)}
"""Shorter names of some options."""
ONLY_BACKBONES: Final = MappingProxyType({"model": "What is trained: a backbone."})
"""What `field_options` says where methods are refused."""
WITHOUT_FEATURES: Final = MappingProxyType(
    {"user_feature_dim": "Features of a user.", "item_feature_dim": "Features of an item."}
)
"""What it says where there are no files of features, only their numbers."""
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class FieldOption(click.Option):
    """An option that belongs to a section of the help."""

    section = ""


class Names(click.ParamType[tuple[str, ...]]):
    """Several, with commas between them; one that has a comma itself is in quotes, as in CSV."""

    name = "A,B,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        try:
            [parts] = csv.reader([str(value)], skipinitialspace=True, strict=True)
        except csv.Error as error:
            self.fail(
                f"{value!r} cannot be taken apart: {error}; expected commas between them, double "
                'quotes around one that has a comma or a quote itself, and "" for that quote.',
                param,
                ctx,
            )
        return tuple(part.strip() for part in parts if part.strip())


class NumberOrWord(click.ParamType[int | str]):
    """A whole number, or one of some words."""

    name = "number"

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "|".join(("N", *self._words))

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        try:
            return str(value) if value in self._words else int(value)
        except ValueError:
            expected = " or ".join(("a number", *self._words))
            self.fail(f"{value!r} is not {expected}.", param, ctx)


class NamedValue(click.ParamType[tuple[str, Any]]):
    """NAME=VALUE, the value as TOML has it, or else a text."""

    name = "NAME=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not (name and equals):
            self.fail(f"{value!r} is not of the form NAME=VALUE.", param, ctx)
        try:
            return name.replace("-", "_"), tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return name.replace("-", "_"), text


class SectionedCommand(click.Command):
    """A command whose help lists the options of each section under a heading."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            if record and isinstance(parameter, click.Option):
                section = getattr(parameter, "section", "Options")
                sections.setdefault(section, []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)


def field_options(
    struct: type[msgspec.Struct],
    section: str,
    *,
    without: Container[str] = (),
    saying: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Decorated], Decorated]:
    """A decorator that adds an option for every field with a default, but for some; `saying` has
    descriptions in place of the fields' own.

    An option that is not given is None or (), never the default: see `given`.
    """
    described = inspect.type_info(struct)
    assert isinstance(described, inspect.StructType)
    fields = [
        field for field in described.fields if not field.required and field.name not in without
    ]
    kind = type("Option", (FieldOption,), {"section": section})

    def decorate(command: Decorated) -> Decorated:
        for field in reversed(fields):
            option = _option(field, saying.get(field.name))
            command = click.option(*_names(field), cls=kind, **option)(command)
        return command

    return decorate


def given(struct: type[msgspec.Struct], values: dict[str, Any]) -> dict[str, Any]:
    """The values of a struct's fields that were given as options."""
    found = {
        name: value
        for name in struct.__struct_fields__
        if (value := values.get(name)) is not None and value != ()
    }
    tables = {
        field.name
        for field in msgspec.structs.fields(struct)
        if get_origin(get_args(field.type)[0] if get_args(field.type) else None) is dict
    }
    return {name: dict(value) if name in tables else value for name, value in found.items()}


config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="A TOML file with any keys of a configuration; flags override it.",
)


overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace files that are already there."
)


def new_name(stem: str, ending: str = "") -> Path:
    """A name in runs/ that nothing has yet."""
    names = (Path("runs") / f"{stem}-{number}{ending}" for number in count(1))
    return next(path for path in names if not path.exists())


suite_option = click.option(
    "--suite",
    type=click.Choice(get_args(SuiteName)),
    default="sealed",
    show_default=True,
    help="What is encrypted under which key; a server with another suite is refused.",
)
virtual_items_option = click.option(
    "--virtual-items",
    type=click.Path(path_type=Path),
    help="File that remembers virtual items for the next run: NAME.virtual-items beside the "
    "credentials, if not given.",
)
cooccurrence_option = click.option(
    "--cooccurrence",
    type=click.Path(path_type=Path),
    help="What goes together, where the federation draws virtual items so: the public file that "
    "its operator names, on this machine.",
)
least_members_option = click.option(
    "--least-members",
    type=click.IntRange(min=LEAST_MEMBERS),
    default=LEAST_MEMBERS,
    show_default=True,
    help="Among how many to be: a term of fewer is refused, and nothing is sent in it.",
)


def asked(config_file: Path | None, fields: dict[str, Any]) -> dict[str, Any]:
    """What the file and the flags ask for; flags override the file."""
    values = {}
    if config_file is not None:
        values = read_toml(config_file)
        parse(values, where=str(config_file))
    return {**values, **given(Config, fields)}


def data_asked(dataset: str | None, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `Source` that were given; a file of one's own needs no name."""
    from lpgcn.data.readers import dataset_name

    train = fields["train"]
    name = dataset or (dataset_name(Path(train)) if train else None)
    return given(Source, {**fields, "dataset": name})


def source_asked(dataset: str | None, fields: dict[str, Any]) -> Source:
    data = data_asked(dataset, fields)
    if "dataset" not in data:
        raise click.UsageError("Missing argument 'DATASET'; see `lpgcn data list`.")
    return Source(**data)


def _names(field: inspect.Field) -> tuple[str, ...]:
    return f"--{field.name.replace('_', '-')}", *_ALSO.get(field.name, ()), field.name


def _option(field: inspect.Field, said: str | None) -> dict[str, Any]:
    kind, description = field.type, ""
    if isinstance(kind, inspect.Metadata):
        description = (kind.extra_json_schema or {}).get("description", "")
        kind = kind.type
    default = field.default if isinstance(field.default, tuple) else (field.default,)
    if isinstance(kind, inspect.DictType):
        default = ()
    shown = " ".join(str(value) for value in default if value is not None)
    # Click would show its own default, which is that the option was not given.
    default_text = f"  [default: {shown}]" if shown else ""
    return {"help": (said or description) + default_text, **_click_type(kind)}


def _click_type(kind: inspect.Type) -> dict[str, Any]:
    """How click reads a type. Ranges are left to the struct, which checks them in every way in."""
    match kind:
        case inspect.Metadata(type=inner):
            return _click_type(inner)
        case inspect.UnionType(types=(inner, inspect.NoneType())):
            return _click_type(inner)
        case inspect.UnionType(types=(inspect.IntType(), inspect.LiteralType(values=words))):
            return {"type": NumberOrWord([str(word) for word in words])}
        case inspect.DictType():
            return {"type": NamedValue(), "multiple": True}
        case inspect.VarTupleType(item_type=inner):
            return {**_click_type(inner), "multiple": True}
        case inspect.TupleType(item_types=(inner, *_) as inners):
            return {**_click_type(inner), "nargs": len(inners)}
        case inspect.LiteralType(values=values):
            return {"type": click.Choice(values)}
        case inspect.BoolType():
            return {"is_flag": True, "default": None}
    types = {
        inspect.IntType: click.INT,
        inspect.FloatType: click.FLOAT,
        inspect.StrType: click.STRING,
    }
    return {"type": types[type(kind)]}
