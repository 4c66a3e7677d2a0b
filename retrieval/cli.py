"""The command line: the group of commands, settings files, and what an error looks like."""

from __future__ import annotations

import errno
import io
import logging
import sys
from collections.abc import Mapping
from typing import Any

import click

from retrieval import __version__
from retrieval.commands import evaluation, fusion, index, negatives, search, training, tune
from retrieval.errors import ConfigError, RetrievalError


class _Failure(click.ClickException):
    """An error on purpose: one line on stderr, exit 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {' '.join(self.message.split())}", err=True)


_FREE = {"query": "TEXT", "delete": "ID"}  # commands with an argument that may begin with a dash


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            context = error.ctx or ctx
            if (what := _FREE.get(str(context.info_name))) is None:
                raise
            hint = f"{what} that begins with a dash stands after --: {context.command_path} INDEX -- {what}"
            raise click.UsageError(f"{error.format_message()} {hint}", context) from error
        except RetrievalError as error:
            raise _Failure(str(error)) from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever read us has left; click knows what to do
                raise
            where = f"{error.filename}: " if error.filename else ""
            raise _Failure(f"{where}{(error.strerror or str(error)).lower()}") from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="retrieve")
@click.option("--config", type=click.Path(), help="TOML file of options, a table for each command: [build-index] ...")
@click.option("-v", "--verbose", is_flag=True, help="Say more on stderr.")
@click.pass_context
def main(ctx: click.Context, config: str | None, verbose: bool) -> None:
    """Search your own documents: build an index, query it, rerank, evaluate.

    \b
    retrieve build-index docs/ my-index
    retrieve query my-index "how do I rotate the log files?"
    retrieve evaluate --index my-index --benchmark my-benchmark
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what the terminal's encoding lacks is shown as an escape
            stream.reconfigure(errors="backslashreplace")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr, force=True)
    logging.getLogger("retrieval").setLevel(logging.INFO if verbose else logging.WARNING)
    if config is not None:
        ctx.default_map = _defaults(config)


def _defaults(path: str) -> dict[str, Any]:
    from retrieval.config import read_settings

    return _checked(path, main, read_settings(path))


def _checked(path: str, group: click.Group, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a file's tables, by command, into click's defaults, by parameter; [train.bi-encoder] is a table in one."""
    defaults: dict[str, Any] = {}
    for name, table in tables.items():
        command = group.commands.get(name)
        if command is None or not isinstance(table, dict):
            raise ConfigError(f"{path}: there is no command {name!r}; there are {', '.join(group.commands)}")
        if isinstance(command, click.Group):
            defaults[name] = _checked(path, command, table)
            continue
        options = {option.lstrip("-"): found for found in _settable(command) for option in found.opts}
        defaults[name] = {}
        for key, value in table.items():
            option = options.get(key.replace("_", "-"))
            if option is None:
                raise ConfigError(f"{path}: `retrieve {name}` has no option --{key.replace('_', '-')}")
            what, types = _expected(option)
            listed = isinstance(value, list)
            if listed is not option.multiple or not all(_is_one(types, one) for one in (value if listed else [value])):
                kind = f"a list, each value {what}" if option.multiple else f"one value, {what}"
                raise ConfigError(f"{path}: {key} of [{name}] is {value!r:.80}; expected {kind}")
            defaults[name][str(option.name)] = value
    return defaults


def _expected(option: click.Option) -> tuple[str, tuple[type, ...]]:
    """Say what an option takes in a settings file: click would make 20 of 20.9, and 1 of true."""
    if isinstance(option.type, click.types.BoolParamType):
        return "true or false", (bool, str)
    if isinstance(option.type, click.types.IntParamType):
        return "a whole number", (int, str)
    if isinstance(option.type, click.types.FloatParamType):
        return "a number", (int, float, str)
    return "a text", (str,)


def _is_one(types: tuple[type, ...], value: object) -> bool:
    """Whether a value is of one of some types; true is no number."""
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def _settable(command: click.Command) -> list[click.Option]:
    """A command's options that a settings file may hold: not those that are another's short form."""
    options = [option for option in command.params if isinstance(option, click.Option)]
    return [option for option in options if not isinstance(option.flag_value, str)]


for _module in (index, search, evaluation, fusion, negatives, training, tune):
    for _command in _module.COMMANDS:
        main.add_command(_command)


@main.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor_command(as_json: bool) -> None:
    """Look at the installation: versions, FAISS and GPU, threads, the default models, the network setting.

    \b
    retrieve doctor
    """
    from retrieval.console import print_facts
    from retrieval.doctor import examine

    facts = examine()
    print_facts(facts, as_json=as_json)
    if facts["problems"] != "none":
        raise ConfigError(f"the installation has problems: {facts['problems']}")


if __name__ == "__main__":
    main(prog_name="retrieve")
