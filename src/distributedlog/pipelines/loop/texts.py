"""Do a pipeline's definitions depend on the project's files alone?  Read from their text; nothing is run.

Definitions in Python are programs: they may ask the clock, other files, or another machine which tables there
are, and then the same files mean something else at another time.  They are believed where nothing in them
can:

| in a Python file                                                   | then                         |
|--------------------------------------------------------------------|------------------------------|
| imports of Spark's parts that build plans, of our own for Spark,   | they depend on nothing else  |
| and of those of Python's own that compute and no more (`MODULES`)  |                              |
| any other import; `open`, `eval`, … (`REFUSED`), `__names__`; what | not known                    |
| has Spark compute at once, functions that make tables (`UNKNOWN`)  |                              |

SQL depends on nothing else, but for words that stand for a time (`date 'today'`): Spark's parser makes of
them the time that it is.  They matter where everything is computed anew, and nobody can see them in the plan.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

MODULES: Final = (
    "pyspark.pipelines", "pyspark.sql", "distributedlog.spark", "__future__", "collections", "dataclasses",
    "decimal", "enum", "functools", "itertools", "json", "math", "operator", "re", "string", "textwrap",
    "typing",
)  # fmt: skip
REFUSED: Final = frozenset(
    ("open", "eval", "exec", "compile", "input", "globals", "locals", "vars", "getattr", "breakpoint")
)
UNKNOWN: Final = frozenset(
    (
        "collect",
        "toPandas",
        "toArrow",
        "toLocalIterator",
        "take",
        "head",
        "tail",
        "isEmpty",
        "foreach",
        "udtf",
    )
)
_DUNDERS: Final = frozenset(("__name__", "__doc__"))
_MOMENT: Final = re.compile(r"""['"]\s*(?:now|today|tomorrow|yesterday)\b""", re.IGNORECASE)


def depends_on(texts: Mapping[str, str]) -> str | None:
    """Returns what definitions may depend on beside their files, in words; None if on nothing.  `texts`: path
    → text."""
    for path, text in texts.items():
        if path.endswith(".py"):
            try:
                found = next(_doubts(ast.parse(text)), None)
            except (SyntaxError, ValueError):
                return f"{path} is not understood"
            if found is not None:
                return f"{path} uses {found}"
        elif not path.endswith(".sql"):
            return f"{path} is neither Python nor SQL"
    return None if texts else "the definitions cannot be read"


def names_a_moment(texts: Mapping[str, str]) -> bool:
    """Returns whether anything in them may be a word for a time."""
    return any(_MOMENT.search(text) is not None for text in texts.values())


def _doubts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names if not _is_plain(each.name))
            case ast.ImportFrom(module=module, names=names, level=level):
                whole = [f"{module or ''}.{each.name}" for each in names]
                yield from (each for each in whole if level or not _is_plain(each))
            case ast.Name(id=name) if name in REFUSED or _is_hidden(name):
                yield name
            case ast.Attribute(attr=name) if name in UNKNOWN or _is_hidden(name):
                yield name
            case _:
                pass


def _is_plain(name: str) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in MODULES)


def _is_hidden(name: str) -> bool:
    return name.startswith("__") and name not in _DUNDERS
