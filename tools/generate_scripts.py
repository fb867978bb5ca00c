"""Generate from the headers of the scripts the names in them, and the builders in signatures.py.

The builders of reliq/lua are in reliq/ops, those of a slice's folder `lua` in the slice. A header names the keys and
arguments of its script in their order (reliq/lua/README.md has the grammar). Those that each queue has once, and the
groups of keys that several scripts take, a builder takes from QueueKeys. `python tools/generate_scripts.py` writes the
block of locals in each Lua file, and the builders; with `--check` it only names the files that differ (exit status 1).
"""

import ast
import keyword
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LUA, KEYS, TARGET = Path("reliq/lua"), Path("reliq/contract/key_names.py"), Path("reliq/ops/signatures.py")
FEATURES = Path("reliq/features")
#: Tuples of QueueKeys, and the shared file that names their keys.
GROUPS = {"places": "place", "outcomes": "results", "slots": "holders", "rates": "flow"}
SIZED = frozenset(("outcomes", "rates"))  #: groups of which scripts reckon with the number of keys
BEGIN, END = "-- names of the keys and arguments (tools/generate_scripts.py)", "-- end of the names"
LUA_WORDS = (
    "cjson cmsgpack do end error function ipairs local math next nil pairs pcall redis repeat select string table then "
    "tonumber tostring type unpack until"
)
RESERVED = frozenset({*LUA_WORDS.split(), *keyword.kwlist, "keys"})
WIDTH = 118

ITEM = re.compile(r"(\w+)(\.\.\.|\?)?(?:: (number|flag))?(?: \[(.+)\])?")
BLOCK = re.compile(f"^{re.escape(BEGIN)}\n.*?^{re.escape(END)}\n", re.MULTILINE | re.DOTALL)
HEADER = re.compile(r"\A(?:--.*\n)+")

HEAD = '"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""\n'
IMPORTS = (
    ("\n", "collections.abc", ("Iterable", "Sequence")),
    ("\n", "reliq.contract.key_names", ("JobKeys", "NamedKeys")),
    ("", "reliq.ops.request", ("Argument", "Call", "Record", "Records", "flat")),
)


@dataclass(frozen=True)
class Item:
    """A key or an argument of a script, a group of keys, or the rest of them."""

    name: str
    kind: str = ""  #: number, flag; empty: as it is
    optional: bool = False
    rest: bool = False
    fields: tuple["Item", ...] = ()  #: of each of the rest
    size: int = 1  #: how many keys or arguments it stands for, or each of the rest


@dataclass(frozen=True)
class Script:
    """A script with what its header says. `body`: its code without comments and strings."""

    name: str
    keys: tuple[Item, ...]
    arguments: tuple[Item, ...]
    body: str


class Wrong(Exception):
    """A header, or a name in it, cannot be used."""


def key_names(root: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the keys that each queue has once, with the class that has them, and the names of those of each group."""
    owners, groups = {}, {}
    classes = ast.parse((root / KEYS).read_text(encoding="utf-8")).body
    for owner in (one for one in classes if isinstance(one, ast.ClassDef)):
        for node in ast.walk(owner):
            match node:
                case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Tuple(elts=elements)) if name in GROUPS:
                    groups[name] = [one.attr for one in elements if isinstance(one, ast.Attribute)]
                    owners[name] = owner.name
                case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.BinOp()):
                    owners[name] = owner.name
    return owners, groups


def items(text: str, sizes: dict[str, int]) -> tuple[Item, ...]:
    """Read a list of keys or arguments."""
    return () if text == "none" else tuple(_item(part, sizes) for part in _split(text))


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _item(text: str, sizes: dict[str, int]) -> Item:
    match = ITEM.fullmatch(text)
    if match is None:
        raise Wrong(f"{text!r} is not a name, `name: number`, `name: flag`, `name?`, `name...` or `name... [fields]`")
    name, mark, kind, inner = match.groups()
    fields = items(inner, sizes) if inner else ()
    size = sum(one.size for one in fields) if fields else sizes.get(name, 1)
    return Item(name, kind or "", mark == "?", mark == "...", fields, size)


def declared(header: str, title: str) -> str:
    """Return what a header lists as KEYS or ARGV: one line, and those after it while a comma or a bracket is open."""
    match = re.search(rf"^-- {title}  (.+(?:(?<=,)\n--       .+)*)$", header, re.MULTILINE)
    if match is None:
        raise Wrong(f"no line begins with `-- {title}  `")
    return re.sub(r"\n-- +", " ", match[1])


def read_script(path: Path, sizes: dict[str, int], lua: Path = ROOT / LUA) -> Script:
    """Read a script. Raises Wrong if its header names nothing, or uses a name that the script has otherwise."""
    source = BLOCK.sub("", path.read_text(encoding="utf-8"))
    header = HEADER.match(source)
    if header is None:
        raise Wrong("it has no header")
    keys, arguments = (items(declared(header[0], title), sizes) for title in ("KEYS", "ARGV"))
    body = re.sub(r"'(?:\\.|[^'\\\n])*'|--.*", "''", source[header.end() :])
    if re.search(r"\b(KEYS|ARGV)\[\d|\bunpack\((KEYS|ARGV), \d|= [1-9]\d*, #(KEYS|ARGV)\b", body):
        raise Wrong("its code has the number of a key or argument")
    script = Script(path.stem, keys, arguments, body)
    names = [one.name for one in (*keys, *arguments)]
    clashes = {one for one in names if names.count(one) > 1 or one in RESERVED}
    if clashes := clashes or {*values(script)} & _shared_names((path.parent, lua), header[0]):
        raise Wrong(f"it or a shared file has these names twice, or they are reserved: {', '.join(sorted(clashes))}")
    return script


def _shared_names(folders: Sequence[Path], header: str) -> set[str]:
    """Return the names that the shared files of a script define."""
    uses = re.search(r"^-- uses: (.+)$", header, re.MULTILINE)
    paths = [folder / "shared" / f"{one}.lua" for one in (uses[1].split(", ") if uses else ()) for folder in folders]
    texts = [path.read_text(encoding="utf-8") for path in paths if path.exists()]
    found = [name for text in texts for name in re.findall(r"^local (?:function )?([\w, ]+)", text, re.MULTILINE)]
    return {one for name in found for one in name.strip().split(", ")}


def values(script: Script) -> dict[str, str]:
    """Return the names that the code of a script uses, with what each stands for."""
    names: dict[str, str] = {}
    for table, some in (("KEYS", script.keys), ("ARGV", script.arguments)):
        place: int | None = 1
        for item in some:
            for name, value in _named(item, table, place).items():
                if names.setdefault(name, value) != value:
                    raise Wrong(f"{name} would stand for {names[name]} and for {value}")
            place = None if place is None or item.rest else place + item.size
    return {name: value for name, value in names.items() if re.search(rf"(?<![\w.]){name}\b", script.body)}


def _named(item: Item, table: str, place: int | None) -> dict[str, str]:
    if item.rest or item.name in GROUPS:
        names = {} if place is None else {item.name.upper(): str(place)}
        if item.rest and item.size > 1 and not any(one.rest for one in item.fields):
            names[f"{item.name.upper()}_STEP"] = str(item.size)
        return names | dict(_offsets(item.fields))
    if place is None:
        raise Wrong(f"{item.name} stands after the rest, and has no number")
    one = f"{table}[{place}]"
    return {item.name: {"number": f"tonumber({one})", "flag": f"{one} == '1'"}.get(item.kind, one)}


def _offsets(fields: tuple[Item, ...]) -> Iterator[tuple[str, str]]:
    place = 0
    for one in fields:
        yield one.name.upper(), str(place)
        if one.rest:
            yield f"{one.name.upper()}_STEP", str(one.size)
            yield from _offsets(one.fields)
        place += one.size


def locals_of(script: Script) -> str:
    """Return the block of a script; empty if its code uses no name."""
    kinds: dict[str, list[tuple[str, str]]] = {"KEYS": [], "ARGV": [], "": []}
    for name, value in values(script).items():
        kinds[next((one for one in kinds if one and one in value), "")].append((name, value))
    lines = [line for pairs in kinds.values() for line in _assigned(pairs)]
    return "\n".join([BEGIN, *lines, END, ""]) if lines else ""


def _assigned(pairs: list[tuple[str, str]]) -> Iterator[str]:
    line: list[tuple[str, str]] = []
    for pair in pairs:
        if line and len(_local([*line, pair])) > WIDTH:
            yield _local(line)
            line = []
        line.append(pair)
    if line:
        yield _local(line)


def _local(pairs: list[tuple[str, str]]) -> str:
    return f"local {', '.join(name for name, _ in pairs)} = {', '.join(value for _, value in pairs)}"


def group_block(name: str, keys: list[str]) -> str:
    """Return the block of a shared file: the keys of a group by name."""
    pairs = [f"{one} = KEYS[at{f' + {place}' if place else ''}]" for place, one in enumerate(keys)]
    return "\n".join(
        [
            BEGIN,
            f"local function named_{name}(at) -- types not checked",
            "  return {",
            _wrapped(", ".join(pairs), 4) + ",",
            "  }",
            "end",
            *([f"local {name.upper()}_SIZE = {len(keys)}"] if name in SIZED else []),
            END,
            "",
        ]
    )


def _wrapped(text: str, indent: int) -> str:
    """Break a text after commas, into indented lines."""
    whole = text.replace(" ", "\0").replace(",\0", ", ")
    space = " " * indent
    lines = textwrap.wrap(whole, WIDTH, initial_indent=space, subsequent_indent=space, break_long_words=False)
    return "\n".join(lines).replace("\0", " ")


def with_block(source: str, block: str) -> str:
    """Return a script with another block, which comes after its header."""
    source = BLOCK.sub("", source)
    header = HEADER.match(source)
    end = header.end() if header else 0
    return source[:end] + block + source[end:]


def builders(script: Script, called: str, owners: dict[str, str]) -> Iterator[str]:
    """Return the source of the function that builds a call of a script, and of those for the records of its rest.

    `owners`: the keys that each queue has once, with the class that has them.
    """
    every = [(one, _typed(one, "str")) for one in script.keys if not _is_own(one, owners)]
    every += [(one, _typed(one, "Argument")) for one in script.arguments]
    listed = [_parameter(*one) for one in sorted(every, key=lambda one: one[0].optional)]
    head = _head(script.name, script.keys, listed, owners, "Call")
    yield head + _returned(f'"{called}"', _tuple(script.keys, owners), _tuple(script.arguments, {}))
    for item in script.keys:
        yield from _records(script.name, item, "str", owners)
    for item in script.arguments:
        yield from _records(script.name, item, "Argument", {})


def _records(script: str, item: Item, kind: str, owners: dict[str, str]) -> Iterator[str]:
    if item.fields:
        listed = [_parameter(one, _typed(one, kind)) for one in item.fields if not _is_own(one, owners)]
        result = "Record" if kind == "Argument" else f"tuple[{kind}, ...]"
        head = _head(f"{script}_{item.name.removesuffix('s')}", item.fields, listed, owners, result)
        yield head + _returned(_tuple(item.fields, owners))
        for one in item.fields:
            yield from _records(script, one, kind, owners)


def _is_own(item: Item, owners: dict[str, str]) -> bool:
    """Whether a queue has one such key, and the script always gets it."""
    return item.name in owners and not (item.optional or item.rest)


def _head(name: str, some: tuple[Item, ...], listed: list[str], owners: dict[str, str], result: str) -> str:
    """Return how a function begins: with the keys of a queue if it takes any from them, and its other parameters."""
    found = {owners[one.name] for one in some if _is_own(one, owners)}
    keys = [f"keys: {'NamedKeys' if 'NamedKeys' in found else 'JobKeys'}"] if found else []
    parameters = ", ".join([*keys, *(["*"] if listed else []), *listed])
    line = f"def {name}({parameters}) -> {result}:"
    return line if len(line) <= WIDTH else f"def {name}(\n{_wrapped(parameters, 4)},\n) -> {result}:"


def _returned(*values: str) -> str:
    line = f"    return {', '.join(values)}"
    if len(line) <= WIDTH:
        return f"\n{line}\n"
    return "\n    return (\n" + "".join(f"{_wrapped(value, 8)},\n" for value in values) + "    )\n"


def _typed(item: Item, kind: str) -> str:
    if item.name in GROUPS:
        return "Sequence[str]"
    if item.fields:
        return "Records" if kind == "Argument" else f"Iterable[tuple[{kind}, ...]]"
    return f"Iterable[{kind}]" if item.rest else {"number": "float", "flag": "bool"}.get(item.kind, kind)


def _parameter(item: Item, kind: str) -> str:
    if not item.optional:
        return f"{item.name}: {kind}"
    return f"{item.name}: {kind} = ()" if item.name in GROUPS else f"{item.name}: {kind} | None = None"


def _tuple(some: tuple[Item, ...], owners: dict[str, str]) -> str:
    parts = []
    for one in some:
        name = f"keys.{one.name}" if _is_own(one, owners) else one.name
        value = f"int({name})" if one.kind == "flag" else name
        if one.fields:
            parts.append(f"*flat({value})")
        elif one.rest or one.name in GROUPS:
            parts.append(f"*{value}")
        else:
            parts.append(f"*(() if {name} is None else ({value},))" if one.optional else value)
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def with_imports(code: str) -> str:
    """Return a module of builders, with the imports that it uses."""
    used = [
        (before, module, [one for one in names if re.search(rf"\b{one}\b", code)]) for before, module, names in IMPORTS
    ]
    lines = [f"{before}from {module} import {', '.join(names)}\n" for before, module, names in used if names]
    return f"{HEAD}{''.join(lines)}\n\n{code}"


def generated(root: Path) -> Iterator[tuple[Path, str]]:
    """Return all files that this tool writes, with their text. Raises Wrong with the file that is at fault."""
    owners, groups = key_names(root)
    for name, shared in GROUPS.items():
        path = LUA / "shared" / f"{shared}.lua"
        yield path, with_block((root / path).read_text(encoding="utf-8"), group_block(name, groups[name]))
    sizes = {name: len(keys) for name, keys in groups.items()}
    yield from _of_folder(root, LUA, TARGET, sizes, owners)
    for folder in sorted((root / FEATURES).glob("*/lua")):
        slice_ = folder.parent.relative_to(root)
        yield from _of_folder(root, slice_ / "lua", slice_ / "signatures.py", sizes, owners, f"{slice_.name}/")


def _of_folder(
    root: Path, folder: Path, target: Path, sizes: dict[str, int], owners: dict[str, str], prefix: str = ""
) -> Iterator[tuple[Path, str]]:
    """Return the scripts of a folder and their builders. `prefix`: of the names by which they are called."""
    code: list[str] = []
    for path in sorted((root / folder).glob("*.lua")):
        try:
            script = read_script(path, sizes, root / LUA)
            block = locals_of(script)
        except Wrong as error:
            raise Wrong(f"{(folder / path.name).as_posix()}: {error}") from error
        yield folder / path.name, with_block(path.read_text(encoding="utf-8"), block)
        code += builders(script, prefix + script.name, owners)
    yield target, with_imports("\n\n".join(code))


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write the files that differ; with `--check` name them on stderr and return 1."""
    try:
        wanted = list(generated(root))
    except Wrong as error:
        sys.stderr.write(f"{error}\n")
        return 1
    differing = [
        path for path, text in wanted if not (root / path).exists() or (root / path).read_text(encoding="utf-8") != text
    ]
    if "--check" not in arguments:
        for path, text in wanted:
            (root / path).write_text(text, encoding="utf-8")
    elif differing:
        names = ", ".join(path.as_posix() for path in differing)
        sys.stderr.write(f"{names} differ from the headers of the scripts: run `make fix`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
