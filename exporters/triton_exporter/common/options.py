"""Options: each is one field of a class, and command line, environment, file, help and docs follow from it.

    class WebSettings(OptionsModel):
        listen: Address = ("127.0.0.1", 9097)
        '''address to serve the pages on (default: {default})'''

This is `--listen` on the command line. In a file its key is `listen`, in the section of the class where the file has
sections, and `TRITONWATCH_WEB_LISTEN` is its variable. Its type reads and checks what is given, and its docstring is its
help. A flag wins over the variable, and the variable over the file. First the types, then how values are read.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from inspect import get_annotations
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from triton_exporter.common.duration import duration_between, duration_text
from triton_exporter.common.problem import Problem, ProblemsError, nearest

T = TypeVar("T")


class Form(NamedTuple):
    """Form of an option's value; a `repeated` option can be given several times, a `switch` has no value.

    `default_text` writes a default for the `{default}` of the help.
    """

    metavar: str
    repeated: bool = False
    switch: bool = False
    default_text: Callable[[Any], str] = str


class Variable(NamedTuple):
    """An environment variable with a name of its own; `has_content`: its value is what the option's file contains."""

    name: str
    has_content: bool = False


class Key(NamedTuple):
    """A key in a file that has another name than the option, such as `prometheus.url`.

    Without it in the file, the value is what `derive` makes of the value of the `other` key, given the file's folder.
    """

    path: str
    other: str = ""
    derive: Callable[[str, Path], str] = lambda value, _folder: value


class _Rarely(NamedTuple):
    """An option that only --help-all shows."""


Rare = Annotated[T, _Rarely()]


class Content(NamedTuple):
    """Text that a variable has instead of a file, and the place of the text."""

    text: str
    place: str


def single(read: Callable[[str], Any]) -> BeforeValidator:
    """Return a validator of one value, by a function of its text; other values are final."""

    def checked(raw: object) -> Any:
        if isinstance(raw, list | dict):
            raise ValueError(f"{raw!r} is not a single value")
        return read(str(raw)) if isinstance(raw, str | int | float | Path) else raw

    return BeforeValidator(checked)


def each(read: Callable[[str], Any]) -> BeforeValidator:
    """Return a validator of a list of values, or of one, by a function of the text of each."""

    def checked(item: object) -> Any:
        if item is None or isinstance(item, bool | list | dict):
            raise ValueError(f"{item!r} is not text; a name such as null, true or #pages needs quotes")
        return read(str(item))

    return BeforeValidator(
        lambda raw: tuple(checked(item) for item in (raw if isinstance(raw, list | tuple) else [raw]))
    )


def path(text: str) -> Path:
    """Return a path; an empty one, which an unset variable leaves, would be the current folder."""
    if not text:
        raise ValueError("the value is empty; is a variable unset?")
    return Path(text)


def url(text: str) -> str:
    """Return an http or https URL, without a slash at its end."""
    web_url = with_scheme(text)
    if not is_web_address(web_url):
        raise ValueError(f"{text!r} is not a URL such as http://127.0.0.1:8000")
    parts = urlsplit(web_url)
    if "@" in parts.netloc:
        # The message does not repeat the URL, which may contain a password.
        raise ValueError("a URL takes no user and password; they are given by file")
    if parts.query or parts.fragment:
        raise ValueError(f"{text!r} has a ? or a #; give the URL without it")
    return web_url.rstrip("/")


def metrics_page(text: str) -> str:
    """Return the URL of a page of metrics, by default at the path that Prometheus takes by default."""
    page = url(text)
    return page if urlsplit(page).path else f"{page}/metrics"


def percent(text: str) -> float:
    """Return a share of 1."""
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0.01 <= value <= 100:
        raise ValueError(f"{text!r} is not a share such as 2%, from 0.01% to 100%")
    return value / 100


def words(raw: object) -> tuple[str, ...]:
    """Return the words of a list, or of a text with commas between them."""
    parts = raw if isinstance(raw, list | tuple) else str(raw).split(",")
    return tuple(stripped for part in parts if (stripped := str(part).strip()))


def word(text: str) -> str:
    """Return a text that is not empty."""
    if not text.strip():
        raise ValueError("is empty")
    return text.strip()


def headers(raw: object) -> Any:
    """Return the headers of a file, `name: value`, one a line. Raises ProblemsError."""
    if isinstance(raw, Mapping):
        return raw
    if isinstance(raw, Content):
        place, text = raw.place, raw.text
    else:
        place = str(path(str(raw)))
        try:
            text = Path(place).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = str(getattr(error, "strerror", None) or "is not UTF-8")
            raise ProblemsError(Problem(place, reason)) from error
    found, problems = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        # The line itself may be a secret: it is never part of a message.
        if not colon or not name.strip() or not name.strip().replace("-", "").isalnum() or not line.isascii():
            problems.append(Problem(f"{place}:{number}", "is not a header", "write it as name: value"))
        else:
            found[name.strip()] = value.strip()
    if problems:
        raise ProblemsError(*problems)
    return found


def with_scheme(text: str) -> str:
    """Return an address with `http://` before it where it has no scheme."""
    return f"http://{text}" if text and "://" not in text and not text.startswith("/") else text


def is_web_address(text: str) -> bool:
    """Return whether it is an http or https URL with a host."""
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return valid and not any(character.isspace() for character in text)


def host_and_port(text: str) -> tuple[str, int]:
    """Split HOST:PORT; an IPv6 host may be in brackets, and no host is 127.0.0.1. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9401")
    return host.strip("[]") or "127.0.0.1", int(port)


def is_grpc(address: str) -> bool:
    """Return whether the address of a Triton's API is that of gRPC."""
    return address.startswith(("grpc://", "grpcs://"))


def grpc_address(text: str) -> str:
    """Return HOST:PORT, or grpcs://HOST:PORT for TLS, as gRPC wants it. Raises ValueError."""
    tls = "grpcs://" if text.startswith("grpcs://") else ""
    host, port = host_and_port(text.removeprefix(tls).removeprefix("grpc://"))
    return f"{tls}[{host}]:{port}" if ":" in host else f"{tls}{host}:{port}"


def api_url(text: str) -> str:
    """Return the address of Triton's API: an http or https URL, or grpc://HOST:PORT, or grpcs://HOST:PORT."""
    if not is_grpc(text):
        return url(text)
    scheme, _, address = text.rstrip("/").partition("://")
    if not re.fullmatch(r"[^\s/@?#]+:[0-9]+", address):
        raise ValueError(f"{text!r} is not {scheme}://HOST:PORT, such as {scheme}://127.0.0.1:8001")
    return f"{scheme}://{grpc_address(address)}"


def is_loopback(host: str) -> bool:
    """Return whether no other machine reaches an address of this host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


Url = Annotated[str, single(url), Form("URL")]
MetricsUrl = Annotated[str, single(metrics_page), Form("URL")]
File = Annotated[Path | None, single(path), Form("FILE")]
Folder = Annotated[Path | None, single(path), Form("DIR")]
Address = Annotated[
    tuple[str, int],
    single(host_and_port),
    Form("HOST:PORT", default_text=lambda address: f"{address[0]}:{address[1]}"),
]
Duration = Annotated[
    float, single(duration_between(0.05, 3600)), Form("DURATION", default_text=duration_text)
]
Percent = Annotated[float, single(percent), Form("PERCENT", default_text=lambda share: f"{100 * share:g}%%")]
Patterns = Annotated[tuple[str, ...], each(word), Form("PATTERN", repeated=True)]
HeadersFile = Annotated[Mapping[str, str], BeforeValidator(headers), Form("FILE")]
Switch = Annotated[bool, Form("{true,false}", switch=True)]


class Option(NamedTuple):
    """An option of a class: what the command line, the environment, a file and the docs need of its field."""

    name: str
    form: Form
    help: str
    rare: bool
    group: str
    variable: Variable
    key: str
    other: str = ""
    derive: Callable[[str, Path], str] = lambda value, _folder: value

    @property
    def flag(self) -> str:
        """`--gpu-models` of `gpu_models`."""
        return "--" + self.name.replace("_", "-")


class Given(NamedTuple):
    """A value in a file, and its place."""

    value: Any
    place: str


class OptionsFile(NamedTuple):
    """What a file has, by key; paths in it are relative to its folder. Mistakes are raised when options are read."""

    path: Path
    given: Mapping[str, Given]
    problems: Sequence[Problem] = ()


_MAPPING = "write a YAML mapping of options"
NO_FILE = OptionsFile(Path(), {})


Model = TypeVar("Model", bound="OptionsModel")


class OptionsModel(BaseModel):
    """A class with a field for each option; a field whose type has no Form has no option."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        arbitrary_types_allowed=True,
        defer_build=True,  # --help needs the fields alone
    )
    group: ClassVar[str] = ""
    """Title of its options in the help."""
    section: ClassVar[str] = ""
    """Section of its options in a file."""

    def problems(self, places: Mapping[str, str]) -> Iterable[Problem]:
        """Return what is wrong with several options together; `places` has those that are given."""
        return ()

    @classmethod
    @cache
    def options(cls) -> Mapping[str, Option]:
        found = {}
        for name, field in cls.model_fields.items():
            form = next((mark for mark in field.metadata if isinstance(mark, Form)), None)
            if form is None:
                continue
            declaring = next(base for base in cls.__mro__ if name in get_annotations(base))
            assert issubclass(declaring, OptionsModel)
            key = next(
                (mark for mark in field.metadata if isinstance(mark, Key)),
                Key(".".join(filter(None, (declaring.__dict__.get("section"), name)))),
            )
            own = next((mark for mark in field.metadata if isinstance(mark, Variable)), None)
            variable = own or Variable(
                "TRITONWATCH_" + key.path.removesuffix(".url").replace(".", "_").upper()
            )
            text = str(field.description).replace("{default}", form.default_text(field.default))
            rare = any(isinstance(mark, _Rarely) for mark in field.metadata)
            found[name] = Option(
                name,
                form,
                text,
                rare,
                declaring.__dict__.get("group", ""),
                variable,
                key.path,
                key.other,
                key.derive,
            )
        return found

    @classmethod
    def read(
        cls: type[Model],
        flags: Mapping[str, Any],
        environment: Mapping[str, str],
        file: OptionsFile = NO_FILE,
    ) -> Model:
        """Join flags, environment and the keys of a file. Raises ProblemsError with every mistake."""
        raw, places = {}, {}
        problems = list(file.problems)
        for name, option in cls.options().items():
            text = environment.get(option.variable.name, "")
            if flags.get(name) is not None:
                raw[name], places[name] = flags[name], option.flag
            elif text:
                places[name] = f"${option.variable.name}"
                raw[name] = text.splitlines() if option.form.repeated else text
                if option.variable.has_content:
                    raw[name] = Content(text, places[name])
            elif given := file.given.get(option.key) or file.given.get(option.other):
                raw[name], places[name] = given.value, given.place
                if option.key not in file.given:
                    try:
                        raw[name] = option.derive(str(given.value), file.path.parent)
                    except ValueError as error:
                        problems += _problems(option, {"ctx": {"error": error}}, raw.pop(name), given.place)
                elif option.form.metavar in ("FILE", "DIR") and isinstance(given.value, str) and given.value:
                    raw[name] = str(file.path.parent / given.value)
        for name, field in cls.model_fields.items():
            for mark in field.metadata:
                if name not in cls.options() and isinstance(mark, Variable) and mark.name in environment:
                    raw[name] = environment[mark.name]
        try:
            options = cls.model_validate(raw)
        except ValidationError as error:
            wrong = {str(detail["loc"][0]): detail for detail in error.errors()}
            for name, detail in wrong.items():
                option = cls.options()[name]
                if detail["type"] == "missing" and file.problems:
                    continue  # the file may have it
                if detail["type"] == "missing":
                    fix = f"give {option.flag} {option.form.metavar}"
                    if file.path.name:
                        fix += f", or write it into {file.path} as {option.key.removesuffix('.url')}"
                    problems.append(Problem(option.flag, "is missing", fix))
                else:
                    problems += _problems(option, detail, raw[name], places[name])
            # Again without them, so that what is wrong with several together is reported at once.
            try:
                options = cls.model_validate({name: raw[name] for name in raw if name not in wrong})
            except ValidationError:
                raise ProblemsError(*problems) from error
        problems += options.problems(places)
        if problems:
            raise ProblemsError(*problems)
        return options


def _problems(option: Option, detail: Any, raw: object, place: str) -> Iterable[Problem]:
    error = detail.get("ctx", {}).get("error")
    if isinstance(error, ProblemsError):
        return error.problems
    # A validator may say how to fix it: ValueError(reason, fix).
    reason, *fix = error.args if error else [f"{raw!r}: {detail['msg'].lower()}"]
    return [Problem(place, str(reason), *fix or [f"write it as {option.form.metavar}"])]


def read_file(
    file: Path, known: Collection[str], section: str = "", renamed: Mapping[str, str] | None = None
) -> OptionsFile:
    """Return the options in a YAML file by key (`section.name`), which must be one of the known ones.

    With `section`, the file is this section alone, and has its keys without the name of the section. `renamed` has how
    to write options whose key is not their name.
    """
    import yaml  # here, because most help needs no file

    from triton_exporter.common.yaml_files import YAML_FAULTS, fault, read_yaml

    try:
        content = read_yaml(file)
        node = yaml.compose(file.read_text(encoding="utf-8"))
    except (OSError, *YAML_FAULTS) as error:
        return OptionsFile(file, {}, [Problem(str(file), fault(error), _MAPPING)])
    if content is None:
        return OptionsFile(file, {})
    if not isinstance(content, dict) or not isinstance(node, yaml.MappingNode):
        return OptionsFile(file, {}, [Problem(str(file), "is not a mapping", _MAPPING)])
    known = {key.removeprefix(f"{section}.") if section else key for key in known}
    sections = {key.partition(".")[0] for key in known if "." in key}
    lines: dict[str, int] = {}
    values: dict[str, Any] = {}
    for key, value in node.value:
        name = str(key.value)
        inside = content.get(name)
        if name in sections and inside is None:
            continue  # all of its keys are comments
        if name in sections and isinstance(inside, dict):
            values |= {f"{name}.{inner}": item for inner, item in inside.items()}
            lines |= {f"{name}.{inner.value}": inner.start_mark.line + 1 for inner, _ in value.value}
        else:
            # `prometheus: URL` is short for `prometheus: {url: URL}`.
            full = f"{name}.url" if f"{name}.url" in known else name
            values[full], lines[full] = inside, key.start_mark.line + 1
    places = {key: f"{file}:{lines.get(key, 1)}: {key}" for key in values}
    prefix = f"{section}." if section else ""
    given = {
        prefix + key: Given(value, places[key])
        for key, value in values.items()
        if key in known and value is not None
    }
    no_value = "has no value", "write one, in quotes if it begins with #, or leave the key out"
    problems = [
        Problem(places[key], *no_value)
        if key in known
        else _unknown(places[key], key, known, (renamed or {}).get(key))
        for key, value in values.items()
        if value is None or key not in known
    ]
    return OptionsFile(file, given, problems)


def _unknown(place: str, key: str, known: Collection[str], renamed: str | None) -> Problem:
    """Return the problem of a key that no option has, with the nearest one, or all of its section."""
    if renamed:
        return Problem(place, "is not an option", f"write it as {renamed}")
    section = key.partition(".")[0] + "." if "." in key else ""
    near = nearest(key, known) or nearest(key.partition(".")[2] or key, known)
    listed = sorted(each for each in known if each.startswith(section)) if section else sorted(known)
    fix = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(listed or sorted(known))}"
    return Problem(place, "is not an option", fix)


def adder(add_argument: Callable[..., object], **always: Any) -> Callable[..., None]:
    """Return a function that adds options to a parser or a group, given its `add_argument`.

    `add("--json", "write JSON")` is a switch, `add("--at TIME", "...", moment)` has a value, which `moment` reads,
    and `add("--header 'NAME: VALUE'...", "...")` can be repeated. `always` applies to every option added.
    """

    def add(form: str, text: str, read: Callable[[str], object] | None = None, **how: Any) -> None:
        name, _, metavar = form.partition(" ")
        if metavar.endswith("..."):
            how = {"action": "append", "default": []} | how
        elif name.startswith("-") and not metavar and "choices" not in how:
            how = {"action": "store_true"} | how
        if metavar:
            how["metavar"] = metavar.removesuffix("...")
        if read is not None:
            how["type"] = read
        add_argument(name, help=text, **how | always)

    return add


def parsed(read: Callable[[str], T]) -> Callable[[str], T]:
    """Make a type of arguments from a function that raises ValueError with the mistake in the text."""

    def parse(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse
