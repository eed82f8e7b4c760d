"""Circles of a crate: files that import each other, by their `use` lines and inline paths.

A name that a module re-exports is followed to the file that defines it. Modules of tests do not count.
"""

import re

USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
INLINE = re.compile(r"\b(?:crate|super)(?:::\w+)+")
VISIBILITY = re.compile(r"\bpub\(in [^)]*\)")
TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*\{")


def paths_of(tree):
    """Every path of a `use` tree, as lists of names."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        return [tree.split(" as ")[0].strip().split("::")]
    found, depth, part = [], 0, ""
    for character in tree[brace + 1:tree.rindex("}")] + ",":
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            found += paths_of(tree[:brace] + part.strip()) if part.strip() else []
            part = ""
        else:
            part += character
    return found


class Crate:
    """The files of one crate by module path, and what each imports."""

    def __init__(self, sources):
        """`sources`: code without comments and strings, by path below `src` as a tuple of names without suffix."""
        self.code = {}
        for path, code in sources.items():
            module = path[:-1] if path[-1] in ("mod", "lib", "main") else path
            if "tests" in module or (module and module[-1].endswith("_tests")):
                continue
            tests = TESTS.search(code)
            # Who may see an item says nothing of what the file imports.
            self.code[module] = VISIBILITY.sub("pub", code[:tests.start()] if tests else code)
        self.exports = {module: {} for module in self.code}
        for module, code in self.code.items():
            for public, tree in USE.findall(code):
                for names in paths_of(tree) if public else []:
                    if (path := self.absolute(module, names)) is not None:
                        self.exports[module][names[-1]] = path

    def absolute(self, module, names):
        """A path from the crate's root; None where it leads out of the crate."""
        if names[0] == "crate":
            return tuple(names[1:])
        if names[0] == "self":
            return module + tuple(names[1:])
        above = len(names) - len(rest := names[next((i for i, n in enumerate(names) if n != "super"), len(names)):])
        if above:
            return module[:len(module) - above] + tuple(rest)
        return module + tuple(names) if (*module, names[0]) in self.code else None

    def file_of(self, path, depth=8):
        """The module whose file defines what a path names."""
        for length in range(len(path), -1, -1):
            module = path[:length]
            if module not in self.code:
                continue
            exported = self.exports[module].get(path[length]) if length < len(path) else None
            return self.file_of(exported + path[length + 1:], depth - 1) if exported and depth else module
        return None

    def imports(self, module):
        """The modules that a module imports."""
        code, found = self.code[module], set()
        # What a module exports again is no import of its own.
        named = [names for public, tree in USE.findall(code) if not public for names in paths_of(tree)]
        named += [path.split("::") for path in INLINE.findall(code)]
        for names in named:
            if (path := self.absolute(module, names)) is not None:
                found.add(self.file_of(path))
        return found - {module, None}

    def circles(self):
        """The circles, largest first: Tarjan's strongly connected components of more than one module."""
        edges = {module: sorted(self.imports(module)) for module in self.code}
        number, low, stack, found = {}, {}, [], []

        def visit(module):
            number[module] = low[module] = len(number)
            stack.append(module)
            for other in edges[module]:
                if other not in number:
                    visit(other)
                if other in stack:
                    low[module] = min(low[module], low[other])
            if low[module] == number[module]:
                circle = stack[stack.index(module):]
                del stack[stack.index(module):]
                if len(circle) > 1:
                    found.append(sorted(circle))

        for module in sorted(edges):
            if module not in number:
                visit(module)
        return sorted(found, key=len, reverse=True)
