"""What may be wrong in a line of Python: small changes of its syntax tree, one at a time.

A mutant is named by its module, the qualified name of the function (or `<module>`, for what is
outside functions), the kind of change, and its number among those of its kind in that function. Line
numbers are told for reading, and decide nothing.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Change = Callable[[ast.AST], ast.AST]

SWAPPED: dict[type, list[type]] = {
    ast.Mult: [ast.Div],
    ast.Div: [ast.Mult],
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Pow: [ast.Mult],
    ast.FloorDiv: [ast.Mult],
    ast.Mod: [ast.FloorDiv],
    ast.LShift: [ast.RShift],
    ast.RShift: [ast.LShift],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
    ast.BitXor: [ast.BitOr],
}
COMPARED: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
TWINS = {"max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum", "any": "all"}
TWINS |= {"all": "any", "ceil": "floor", "floor": "ceil", "zeros": "ones", "argmax": "argmin"}
TAKEN_OFF = {
    "abs",
    "sqrt",
    "float64",
    "ceil",
    "floor",
    "log2",
    "rint",
    "exp",
    "log1p",
    "log",
    "copy",
}
# What only words, types and looks depend on.
SPOKEN = {"__repr__", "__str__"}


@dataclass(frozen=True)
class Mutant:
    """One change in one function."""

    module: str
    function: str
    kind: str
    number: int  # among those of this kind in this function
    line: int
    before: str
    after: str
    node: int  # in the order of `ast.walk`
    choice: int  # among the changes of this node
    outside: bool  # of every function: a constant, or what a class says of itself

    @property
    def name(self) -> str:
        return f"{self.module}:{self.function}#{self.kind}.{self.number}"

    def __str__(self) -> str:
        return f"{self.name} (line {self.line}): {self.before}  →  {self.after}"


def mutants_of(module: str, source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines."""
    tree = ast.parse(source)
    order = {id(node): at for at, node in enumerate(ast.walk(tree))}
    inside = {id(f) for _, f in _functions(tree, ())}
    inside |= {id(n) for _, f in _functions(tree, ()) for part in f.body for n in ast.walk(part)}  # type: ignore[attr-defined]
    count: Counter[tuple[str, str]] = Counter()
    found = []
    for function, node in _nodes(tree, ()):
        for choice, (kind, change) in enumerate(_changes(node)):
            after = change(copy.deepcopy(node))
            number = count[function, kind]
            count[function, kind] += 1
            before = _text(node)
            line = getattr(node, "lineno", 0)
            found.append(
                Mutant(
                    module,
                    function,
                    kind,
                    number,
                    line,
                    before,
                    _text(after),
                    order[id(node)],
                    choice,
                    id(node) not in inside,
                )
            )
    return sorted(found, key=lambda mutant: (mutant.line, mutant.node, mutant.choice))


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """The module's tree with that change in it."""
    tree = ast.parse(source)
    wanted = list(ast.walk(tree))[mutant.node]
    kind, change = list(_changes(wanted))[mutant.choice]
    assert kind == mutant.kind, "the source is not the one that the mutant was made from"

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return change(node) if node is wanted else self.generic_visit(node)

    return ast.fix_missing_locations(Replace().visit(tree))


def functions_of(source: str) -> set[str]:
    """The qualified names of all functions in a module."""
    return {name for name, _ in _functions(ast.parse(source), ())}


def texts_of(source: str) -> tuple[dict[str, str], str]:
    """Every function by its qualified name, and what stands outside of functions; without remarks
    and docstrings, however it is laid out."""
    tree = ast.parse(source)
    found = list(_functions(tree, ()))
    for node in (tree, *ast.walk(tree)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_words(body[0]):
            body[0] = ast.Pass()
    texts = {name: ast.unparse(node) for name, node in found}
    for _, node in found:
        node.body = [ast.Pass()]  # type: ignore[attr-defined]
    return texts, ast.unparse(tree)


def _is_words(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _functions(node: ast.AST, path: tuple[str, ...]) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ".".join((*path, child.name)), child
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _functions(child, (*path, child.name))


def _nodes(node: ast.AST, path: tuple[str, ...]) -> Iterator[tuple[str, ast.AST]]:
    """Every node that computes something, with the outermost function that it is in."""
    for child in _parts(node):
        inside = path
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inside = (*path, child.name)
            if child.name in SPOKEN:
                continue
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ".".join(inside), child
        elif isinstance(child, (ast.stmt, ast.expr)) and not isinstance(child, ast.ClassDef):
            yield ".".join(path) or "<module>", child
        yield from _nodes(child, inside)


def _parts(node: ast.AST) -> list[ast.AST]:
    """The children that a mutant may be in: no words, no types, no docstrings."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        defaults = [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
        return [*defaults, *node.body]
    if isinstance(node, ast.ClassDef):
        return list(node.body)
    if isinstance(node, (ast.JoinedStr, ast.Raise, ast.Import, ast.ImportFrom, ast.Global)):
        return []
    if isinstance(node, ast.AnnAssign):
        return [node.value] if node.value is not None else []
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return []
    if isinstance(node, ast.Assert):
        return []
    return list(ast.iter_child_nodes(node))


def _text(node: ast.AST) -> str:
    words = " ".join(ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).split())
    return words if len(words) <= 90 else f"{words[:87]}…"


def _skip(node: ast.stmt) -> ast.stmt:
    """A statement that is not run; its names stay names of the function."""
    return ast.If(test=ast.Constant(False), body=[node], orelse=[])


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        for other in SWAPPED.get(type(node.op), []):
            yield "operator", _with(op=other())
    if isinstance(node, ast.Compare) and len(node.ops) >= 1:
        for at, op in enumerate(node.ops):
            ops = [COMPARED[type(o)]() if i == at else o for i, o in enumerate(node.ops)]
            if type(op) in COMPARED:
                yield "comparison", _with(ops=ops)
    if isinstance(node, ast.Constant):
        for value in _other_constants(node.value):
            yield "constant", _with(value=value)
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "connective", _with(op=other)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield "sign", lambda n: n.operand  # type: ignore[attr-defined]
    if isinstance(node, ast.Call):
        yield from _call_changes(node)
    if isinstance(node, (ast.If, ast.IfExp)):
        yield "condition", lambda n: _with(test=ast.UnaryOp(ast.Not(), n.test))(n)  # type: ignore[attr-defined]
    if isinstance(node, (ast.AugAssign, ast.Raise)):
        yield "dropped", _skip  # type: ignore[misc]
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
        yield "dropped", _skip  # type: ignore[misc]
    if isinstance(node, ast.Assign) and any(_stays(target) for target in node.targets):
        yield "dropped", _skip  # type: ignore[misc]


def _stays(target: ast.AST) -> bool:
    """Whether something outside the function sees that the target was set."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(map(_stays, target.elts))
    return isinstance(target, (ast.Attribute, ast.Subscript))


def _call_changes(node: ast.Call) -> Iterator[tuple[str, Change]]:
    name = _called(node)
    if name in TWINS:
        yield "twin", _renamed(TWINS[name])
    if name in TAKEN_OFF and len(node.args) == 1 and not node.keywords:
        yield "taken off", lambda n: n.args[0]  # type: ignore[attr-defined]
    if name in ("abs", "sqrt", "copy") and not node.args and isinstance(node.func, ast.Attribute):
        yield "taken off", lambda n: n.func.value  # type: ignore[attr-defined]
    plain = [arg for arg in node.args[:2] if not isinstance(arg, ast.Starred)]
    told_apart = name not in ("isinstance", "max", "min", "maximum", "minimum")
    if told_apart and len(plain) == 2 and ast.dump(plain[0]) != ast.dump(plain[1]):
        yield "arguments", lambda n: _with(args=[n.args[1], n.args[0], *n.args[2:]])(n)  # type: ignore[attr-defined]


def _renamed(name: str) -> Change:
    def change(node: ast.AST) -> ast.AST:
        func = node.func  # type: ignore[attr-defined]
        if isinstance(func, ast.Name):
            func.id = name
        else:
            func.attr = name
        return node

    return change


def _with(**given: object) -> Change:
    def change(node: ast.AST) -> ast.AST:
        for field, value in given.items():
            setattr(node, field, value)
        return node

    return change


def _other_constants(value: object) -> list[object]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return {0: [1], 1: [0, 2], 2: [1, 3]}.get(value, [value + 1])
    if isinstance(value, float):
        return {0.0: [1.0], 1.0: [0.0, 2.0], 2.0: [1.0, 3.0]}.get(value, [2 * value])
    return []
