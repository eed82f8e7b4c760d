"""Central objects of a crate, and the places where another module writes their fields.

A central object is a struct with at least eight fields, of which one or more are `pub(crate)`, `pub(super)` or
`pub(in ...)`, and with a method that takes `&mut self` in the file that defines it. Without such a method it is a
record, which any file may fill in.

Its own module is the file that defines it and the files below that (`connection.rs`, `connection/*.rs`): Rust opens
private fields to them too, so that an object's methods may be in several files.

What counts as writing is an assignment to such a field, or `&mut` of it. A method that changes the field in place
(`x.field.push(1)`) is not seen. The object is known by one of three signs: `self` in an `impl` of it; a variable with
its name (`core.field` for `Core`); or the field's name, when no other struct of the crate has it.
"""

import re

MIN_FIELDS = 8
STRUCT = re.compile(r"\bstruct\s+(\w+)[^;{(]*\{")
FIELD = re.compile(r"(?:^|,)\s*(?:#\[[^\]]*\]\s*)*(pub(?:\([^)]*\))?\s+)?(\w+)\s*:(?!:)")
IMPL = re.compile(r"\bimpl\b[^;{]*?\b(?:for\s+)?(\w+)(?:<[^{;]*>)?\s*(?:where[^{]*)?\{")
WRITE = (r"(\w+)(?:\(\)|\[[^\]]*\])*\.({names})\b(?:\[[^\]]*\])?\s*(?:[-+*/|&^%]|<<|>>)?=(?![=>])"
         r"|&mut\s+(?:\w+\.)*(\w+)\.({names})\b(?!\s*[(.])")


def block_end(code, start):
    """The index of the brace that closes the one at `start`."""
    depth = 0
    for index in range(start, len(code)):
        depth += (code[index] == "{") - (code[index] == "}")
        if depth == 0:
            return index
    return len(code)


def blocks(pattern, code):
    """(name, start, end) of each block whose head `pattern` matches."""
    return [(found.group(1), found.end(), block_end(code, found.end() - 1)) for found in pattern.finditer(code)]


def snake(name):
    """A type's name as a variable is named: `ResponseContext` is `response_context`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def foreign_writes(sources):
    """(module, line, text, struct) of each field of a central object that another module writes.

    `sources`: code without comments, strings and tests, by module path as a tuple of names.
    """
    central, owners = [], {}
    for module, code in sources.items():
        impls = blocks(IMPL, code)
        for name, start, end in blocks(STRUCT, code):
            fields = {field: public.strip() for public, field in FIELD.findall(code[start:end])}
            for field in fields:
                owners[field] = owners.get(field, 0) + 1
            open_fields = [field for field, public in fields.items() if public.startswith("pub(")]
            changes = any(of == name and "&mut self" in code[first:last] for of, first, last in impls)
            if len(fields) >= MIN_FIELDS and open_fields and changes:
                central.append((module, name, open_fields))
    for module, code in sources.items():
        impls = blocks(IMPL, code)
        for home, name, fields in central:
            if module[:len(home)] == home:
                continue
            for found in re.finditer(WRITE.format(names="|".join(fields)), code):
                variable, field = (found.group(1), found.group(2)) if found.group(2) else found.groups()[2:]
                if variable == "self":
                    known = any(of == name and first <= found.start() < last for of, first, last in impls)
                else:
                    known = variable == snake(name) or owners[field] == 1
                if known:
                    yield module, code.count("\n", 0, found.start()) + 1, found.group(0).strip(), name
