"""Which tables, views and sinks a pipeline's definitions make, read from their text: nothing is run for it.

To ask Spark takes its start.  Most definitions name what they make plainly, and then a misspelt name can be
refused at once.  Definitions are programs, though, so the text is only believed where nothing in it can make
a table under another name:

| in a Python file, at its top                                       | then                                |
|--------------------------------------------------------------------|-------------------------------------|
| `@dp.table`, `@dp.materialized_view`, `@dp.temporary_view`         | `name=` if it is text, or that of   |
|                                                                    | the function                        |
| `dp.create_streaming_table("…")`, `dp.create_sink("…")`            | the text                            |
| `@dp.append_flow`, `dp.create_auto_cdc_flow`                       | nothing                             |
| imports, constants, functions that do not mention `dp`; calls of   | nothing                             |
| Spark's and Python's own functions                                 |                                     |
| a loop, a name that is computed, another decorator, a call of any  | not known: a run has to tell        |
| other function, `from pyspark.pipelines import …`                  |                                     |

Of SQL the statements that pipelines know are understood; any other makes the names unknown, too.
"""

import ast
import builtins
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from distributedlog.pipelines.graph import DataflowGraph, short
from distributedlog.pipelines.project import Project

PIPELINES: Final = "pyspark.pipelines"
_DECORATORS: Final = {
    "table": "tables", "materialized_view": "tables", "temporary_view": "views", "append_flow": None,
}  # fmt: skip
_CALLS: Final = {"create_streaming_table": "tables", "create_sink": "sinks", "create_auto_cdc_flow": None}
_KNOWN_MODULES: Final = sys.stdlib_module_names | {"pyspark"}
_NAME: Final = r"((?:`[^`]+`|\w+)(?:\.(?:`[^`]+`|\w+))*)"
_SQL_NOISE: Final = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_SQL_TABLE: Final = re.compile(
    rf"CREATE\s+(?:OR\s+REFRESH\s+)?(?:STREAMING\s+TABLE|MATERIALIZED\s+VIEW)\s+(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}",
    re.IGNORECASE,
)
_SQL_VIEW: Final = re.compile(
    rf"CREATE\s+TEMP(?:ORARY)?\s+VIEW\s+(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}", re.IGNORECASE
)
_SQL_NAMELESS: Final = re.compile(r"(?:CREATE\s+FLOW|SET|USE)\b", re.IGNORECASE)


class _NotPlainError(Exception):
    """The text does not tell."""


class _Names:
    def __init__(self) -> None:
        self.by_kind: dict[str, list[str]] = {"tables": [], "views": [], "sinks": []}

    def note(self, kind: str | None, name: str) -> None:
        if kind is not None:
            self.by_kind[kind].append(name)


def check_tables(project: Project, names: Sequence[str]) -> None:
    """Raises `ConfigError` if the definitions make no such table; those that do not tell are believed."""
    written = read_written(definition_texts(project)) if names else None
    if written is not None:
        for name in names:
            written.table(short(name))


def definition_texts(project: Project) -> dict[str, str]:
    """Path → text of each file of definitions; empty if one cannot be read."""
    root = Path(project.directory)
    try:
        return {
            str(path): path.read_text(encoding="utf-8")
            for pattern in project.libraries
            for path in root.glob(f"{pattern}/*" if pattern.endswith("**") else pattern)
            if path.is_file() and "__pycache__" not in path.parts
        }
    except (OSError, ValueError, NotImplementedError):  # Spark says what is wrong with it
        return {}


def read_written(texts: Mapping[str, str]) -> DataflowGraph | None:
    """Returns a graph without flows; None if the texts do not tell, or make no table at all."""
    found = _Names()
    try:
        for path, text in texts.items():
            if path.endswith(".py"):
                _read_python(text, found)
            elif path.endswith(".sql"):
                _read_sql(text, found)
            else:
                return None
    except (_NotPlainError, SyntaxError, ValueError):
        return None
    kinds = {kind: tuple(names) for kind, names in found.by_kind.items()}
    return DataflowGraph((), **kinds) if kinds["tables"] else None


# --- SQL ---------------------------------------------------------------------------------------


def _read_sql(text: str, found: _Names) -> None:
    for statement in map(str.strip, _SQL_NOISE.sub(_blank, text).split(";")):
        if table := _SQL_TABLE.match(statement):
            found.note("tables", table[1].replace("`", ""))
        elif view := _SQL_VIEW.match(statement):
            found.note("views", view[1].replace("`", ""))
        elif statement and _SQL_NAMELESS.match(statement) is None:
            raise _NotPlainError


def _blank(noise: re.Match[str]) -> str:
    return " " if noise[0].startswith(("--", "/*")) else "''"


# --- Python ------------------------------------------------------------------------------------


def _read_python(text: str, found: _Names) -> None:
    module = ast.parse(text)
    imports = [each for each in module.body if isinstance(each, ast.Import | ast.ImportFrom)]
    aliases = {name for each in imports for name in _pipelines_names(each)}
    callable_names = {"spark", *dir(builtins), *_imported(imports, _KNOWN_MODULES)} - aliases
    for statement in module.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        if isinstance(statement, ast.FunctionDef):
            _read_function(statement, aliases, found)
        elif isinstance(statement, ast.Expr) and (call := _pipelines_call(statement.value, aliases)):
            assert isinstance(statement.value, ast.Call)
            _check_plain([*statement.value.args, *statement.value.keywords], aliases, callable_names)
            found.note(_kind(_CALLS, call), _name(statement.value, None, position=0))
        elif isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign):
            _check_plain([statement], aliases, callable_names)
        else:
            raise _NotPlainError


def _read_function(function: ast.FunctionDef, aliases: set[str], found: _Names) -> None:
    if any(_mentions(each, aliases) for each in function.body):
        raise _NotPlainError
    for decorator in function.decorator_list:
        name = _pipelines_call(decorator, aliases)
        if name is None:
            raise _NotPlainError
        kind = _kind(_DECORATORS, name)
        found.note(
            kind, _name(decorator, function.name) if isinstance(decorator, ast.Call) else function.name
        )


def _kind(kinds: Mapping[str, str | None], name: str) -> str | None:
    if name not in kinds:
        raise _NotPlainError
    return kinds[name]


def _name(call: ast.Call, otherwise: str | None, position: int | None = None) -> str:
    """The `name` that a call is given, which has to be plain text."""
    given: list[ast.expr] = [each.value for each in call.keywords if each.arg == "name"]
    if position is not None and not given:
        given = call.args[position : position + 1]
    if any(each.arg is None for each in call.keywords):
        raise _NotPlainError
    if not given and otherwise is not None:
        return otherwise
    if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, str):
        return given[0].value
    if call.keywords and not given:  # a flow's call names its target
        return ""
    raise _NotPlainError


def _pipelines_names(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """What an import makes the module of pipelines known as; its functions under names of their own would
    have to be followed."""
    if isinstance(statement, ast.ImportFrom):
        if (statement.module or "").startswith(PIPELINES):
            raise _NotPlainError
        if statement.module == "pyspark":
            yield from (each.asname or each.name for each in statement.names if each.name == "pipelines")
    else:
        for each in statement.names:
            if each.name == PIPELINES and each.asname is None:
                raise _NotPlainError
            if each.name == PIPELINES:
                yield str(each.asname)


def _imported(imports: Iterable[ast.Import | ast.ImportFrom], modules: frozenset[str] | set[str]) -> set[str]:
    names = set()
    for statement in imports:
        for each in statement.names:
            module = statement.module if isinstance(statement, ast.ImportFrom) else each.name
            if (module or "").split(".")[0] in modules:
                names.add((each.asname or each.name).split(".")[0])
    return names


def _pipelines_call(node: ast.expr, aliases: set[str]) -> str | None:
    """The name of the function of pipelines that is called, or that decorates."""
    function = node.func if isinstance(node, ast.Call) else node
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.attr if function.value.id in aliases else None
    return None


def _check_plain(nodes: Iterable[ast.AST], aliases: set[str], callable_names: set[str]) -> None:
    """Nothing in it calls what might make a table."""
    for top in nodes:
        if _mentions(top, aliases):
            raise _NotPlainError
        for node in ast.walk(top):
            if isinstance(node, ast.Call) and not _is_harmless(node.func, callable_names):
                raise _NotPlainError


def _is_harmless(function: ast.expr, callable_names: set[str]) -> bool:
    while isinstance(function, ast.Attribute | ast.Call | ast.Subscript):
        function = function.func if isinstance(function, ast.Call) else function.value
    return not isinstance(function, ast.Name) or function.id in callable_names


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))
